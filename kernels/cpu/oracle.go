package cpu

import (
	"errors"
	"fmt"

	"waybill/kernels"
	"waybill/kernels/quant"
)

// Oracle is the meaning of every op: one row after another, sums in float64,
// nothing clever. It implements kernels.Backend so that tests can run whole
// models on it.
type Oracle struct {
	math   Math
	batch  *kernels.Batch
	opened []*memory
}

// NewOracle returns an oracle. With Int8 it rounds activations exactly as
// Backend does, so that the two differ by the rounding of sums only.
func NewOracle(m Math) *Oracle { return &Oracle{math: m} }

// oracleWeight is a weight as float32 rows.
type oracleWeight struct {
	rows, cols int
	data       []float32
	// rounded tells for each row whether its activations are rounded to int8.
	rounded []bool
}

// Rows returns the output features.
func (w *oracleWeight) Rows() int { return w.rows }

// Cols returns the input features.
func (w *oracleWeight) Cols() int { return w.cols }

// Bytes returns the memory held, in bytes.
func (w *oracleWeight) Bytes() int64 { return int64(len(w.data)) * 4 }

// row returns row r.
func (w *oracleWeight) row(r int) []float32 { return w.data[r*w.cols : (r+1)*w.cols] }

// Name returns "cpu oracle" and the arithmetic.
func (o *Oracle) Name() string { return "cpu oracle " + o.math.String() }

// NewBuffer returns memory for n elements.
func (o *Oracle) NewBuffer(n int) (kernels.Buffer, error) {
	b, err := newBuffer(n)
	if err != nil {
		return nil, err
	}
	o.opened = append(o.opened, &b.mem)
	return b, nil
}

// Upload returns a buffer that holds data.
func (o *Oracle) Upload(data []float32) (kernels.Buffer, error) {
	b, err := o.NewBuffer(len(data))
	if err != nil {
		return nil, err
	}
	copy(b.(*buffer).data, data)
	return b, nil
}

// Pack returns a weight whose rows are those of all parts in order.
func (o *Oracle) Pack(parts ...kernels.HostTensor) (kernels.Weight, error) {
	rows, cols, err := checkParts(parts)
	if err != nil {
		return nil, err
	}
	mem, err := newMemory(int64(rows) * int64(cols) * 4)
	if err != nil {
		return nil, fmt.Errorf("cpu: pack: tensor %q: %w", parts[0].Name, err)
	}
	o.opened = append(o.opened, &mem)
	w := &oracleWeight{rows: rows, cols: cols, data: mem.floats(), rounded: make([]bool, rows)}
	at := 0
	for i := range parts {
		t := &parts[i]
		for r := range t.PackedRows() {
			quant.Dequantize(w.row(at), t.DType, t.SourceRow(r))
			w.rounded[at] = o.math == Int8 && t.DType.Quantized()
			at++
		}
	}
	return w, nil
}

// NewCache returns zeroed KV memory.
func (o *Oracle) NewCache(spec kernels.CacheSpec) (kernels.Cache, error) {
	return newOracleCache(spec)
}

// Begin starts a step over b.
func (o *Oracle) Begin(b *kernels.Batch) { o.batch = b }

// End waits for nothing: every op is done when it returns.
func (o *Oracle) End() error {
	o.batch = nil
	return nil
}

// Embed sets dst [N, cols] to the rows of w named by Batch.Tokens.
func (o *Oracle) Embed(dst kernels.Buffer, w kernels.Weight) {
	m := w.(*oracleWeight)
	d := floats(dst, len(o.batch.Tokens)*m.cols, "dst")
	for i, t := range o.batch.Tokens {
		copy(d[i*m.cols:(i+1)*m.cols], m.row(int(t)))
	}
}

// Gather sets dst [M, cols] to the rows of x named by Batch.Logits.
func (o *Oracle) Gather(dst, x kernels.Buffer, cols int) { gather(o.batch, dst, x, cols) }

// Read copies the first len(dst) elements of src to dst.
func (o *Oracle) Read(dst []float32, src kernels.Buffer) { copy(dst, floats(src, len(dst), "src")) }

// Close gives memory back.
func (o *Oracle) Close() error {
	var errs []error
	for _, m := range o.opened {
		errs = append(errs, m.close())
	}
	o.opened = nil
	return errors.Join(errs...)
}
