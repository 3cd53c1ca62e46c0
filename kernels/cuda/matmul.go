//go:build cuda

package cuda

import (
	"fmt"

	"gorgonia.org/cu"

	"waybill/kernels"
	"waybill/kernels/cuda/driver"
)

// product is a MatMul that was asked for. It waits for the next op, with which it
// may be done in one kernel.
type product struct {
	dst, x  *buffer
	y       cu.DevicePtr
	w       *weight
	bias    *buffer
	rows    int
	float   bool // y is float32
	waiting bool
}

// flush queues what waits.
func (b *Backend) flush() {
	if p := &b.steps.product; p.waiting {
		p.waiting = false
		b.multiply(p)
	}
	if t := &b.steps.turn; t.waiting {
		t.waiting = false
		b.queueTurn(t)
	}
}

// MatMul sets dst [rows, w.Rows()] = x · wᵀ + bias.
func (b *Backend) MatMul(dst, x kernels.Buffer, w kernels.Weight, bias kernels.Buffer, rows int) {
	b.flush()
	m := w.(*weight)
	if rows < 0 {
		panic(bug("%d rows", rows))
	}
	activations(x, rows*m.cols, "x")
	d, ok := dst.(*buffer)
	if !ok || d.n < rows*m.rows {
		panic(bug("dst: want %d elements, got %T of %d", rows*m.rows, dst, dst.Len()))
	}
	p := product{dst: d, x: x.(*buffer), w: m, rows: rows}
	if p.y = d.bf16; p.y == 0 || d.rows {
		p.y, p.float, d.cols = d.float, true, m.rows
	}
	d.wide, d.raw, d.sums = p.float, false, 0
	if bias != nil {
		parameter(bias, m.rows, "bias")
		p.bias = bias.(*buffer)
	}
	if rows == 0 {
		return
	}
	if p.bias == nil && !p.float && (b.fits(&p) || b.ltTakes(&p)) {
		p.waiting = true
		b.steps.product = p
		return
	}
	b.multiply(&p)
}

// fits reports whether src/wide.cu or src/stream.cu takes a product.
func (b *Backend) fits(p *product) bool {
	if b.wideTakes(p) {
		return true
	}
	most := b.streamMax
	if b.small(p.w) {
		most = b.streamSmall
	}
	return p.rows <= most && p.w.rows%32 == 0 && p.w.cols%32 == 0
}

// small reports whether w is for the kernels of small weights.
func (b *Backend) small(w *weight) bool { return w.Bytes() <= b.smallBytes }

// ltTakes reports whether cuBLASLt takes a product.
func (b *Backend) ltTakes(p *product) bool { return p.w.rows%8 == 0 && p.w.cols%8 == 0 }

// multiply queues a product.
func (b *Backend) multiply(p *product) {
	if b.fits(p) {
		mode := streamPlain
		if p.float {
			mode = streamFloat
		}
		b.streams(mode, p, p.y, follow{})
		return
	}
	b.settle(p.x)
	if b.ltTakes(p) {
		b.multiplyLt(p, false)
		return
	}
	var bias cu.DevicePtr
	if p.bias != nil {
		bias = p.bias.float
	}
	fn := b.fn.matmul
	if p.float {
		fn = b.fn.matmulFloat
	}
	b.args.Reset().Ptr(p.y).Ptr(p.x.bf16).Ptr(p.w.data).Ptr(bias).Int(p.rows).Int(p.w.rows).Int(p.w.cols)
	b.launch("matmul", fn, [3]int{(p.rows*p.w.rows + 7) / 8, 1, 1}, 256, 0, &b.args)
}

// follow is the residual sum and the norm that src/stream.cu and src/wide.cu do behind a product.
type follow struct{ residual, norm, sums, zero cu.DevicePtr }

// streams queues a product of src/wide.cu or src/stream.cu.
func (b *Backend) streams(mode int, p *product, y cu.DevicePtr, f follow) {
	if b.wideTakes(p) {
		b.queueWide(mode, p, y, f)
		return
	}
	i := 0
	for streamRows[i] < p.rows {
		i++
	}
	b.args.Struct()
	b.product(p, y, f)
	fn := b.fn.stream[mode][i]
	if b.small(p.w) {
		fn = b.fn.streamSmall[mode][i]
	}
	b.reads(p.w)
	b.launch("stream", fn, [3]int{p.w.rows / 16, 1, 1}, 256, 0, &b.args)
}

// product appends the fields of a Product of src/product.cuh to the arguments.
func (b *Backend) product(p *product, y cu.DevicePtr, f follow) {
	var bias cu.DevicePtr
	if p.bias != nil {
		bias = p.bias.float
	}
	b.args.Ptr(y).Ptr(p.x.bf16).Ptr(p.w.data).Ptr(bias).Int(p.rows).Int(p.w.rows).Int(p.w.cols).
		Ptr(f.residual).Ptr(f.norm).Ptr(f.sums).Ptr(f.zero).Ptr(p.x.sums).Float(p.x.eps).Int(b.streamTurn)
}

// fuseGate does the waiting product and the gated activation of its result at once.
func (b *Backend) fuseGate(dst, gateUp kernels.Buffer, rows, inner int) bool {
	p := &b.steps.product
	if !p.waiting || kernels.Buffer(p.dst) != gateUp || p.rows != rows || p.w.rows != 2*inner {
		return false
	}
	switch {
	case b.fits(p):
		p.waiting = false
		b.streams(streamGated, p, b.output(dst, rows*inner, "dst"), follow{})
	case b.tiled(p):
		p.waiting = false
		b.settle(p.x)
		p.y = b.output(dst, rows*inner, "dst")
		b.queueGated(p)
	default:
		return false
	}
	return true
}

// fuseResidual does the waiting product and the sum of its result with the residual at
// once, so that the result is never rounded. src/stream.cu and src/wide.cu do the norm, too: its
// factor of each row is left to whoever reads dst.
func (b *Backend) fuseResidual(dst, residual, x, w kernels.Buffer, rows, cols int, eps float32) bool {
	p, s := &b.steps.product, &b.steps
	if !p.waiting || kernels.Buffer(p.dst) != x || p.rows != rows || p.w.rows != cols {
		return false
	}
	p.waiting = false
	if !b.fits(p) {
		b.settle(p.x)
		p.y, p.float = wide(residual, rows*cols, "residual"), true
		b.multiplyLt(p, true)
		b.RMSNorm(dst, residual, w, rows, cols, eps)
		return true
	}
	slot := func(i int) cu.DevicePtr { return s.sums + cu.DevicePtr(i%sumSlots*8*maxWideRows) }
	f := follow{residual: wide(residual, rows*cols, "residual"), norm: parameter(w, cols, "w"), sums: slot(s.norms), zero: slot(s.norms + 1)}
	s.norms++
	y := b.output(dst, rows*cols, "dst")
	b.streams(streamResidual, p, y, f)
	d := dst.(*buffer)
	d.sums, d.eps, d.sumRows, d.sumCols = f.sums, eps, rows, cols
	return true
}

// settle applies the factors that a norm left to its reader.
func (b *Backend) settle(d *buffer) {
	if d.sums == 0 {
		return
	}
	b.args.Reset().Ptr(d.bf16).Ptr(d.sums).Int(d.sumCols).Float(d.eps)
	b.launch("scale_rows", b.fn.scaleRows, [3]int{d.sumRows, 1, 1}, 256, 0, &b.args)
	d.sums = 0
}

// multiplyLt queues a product of cuBLASLt, added to what is there or not. Algorithms are chosen once for each
// bucket of rows: asking takes some 50 µs, and chunks come in any length.
func (b *Backend) multiplyLt(p *product, add bool) {
	if b.err != nil {
		return
	}
	s := driver.LtShape{M: ltRows(p.rows), N: p.w.rows, K: p.w.cols, Float: p.float, Bias: p.bias != nil, Add: add}
	plan := b.plan(s)
	if plan == nil {
		return
	}
	io := driver.LtIO{X: p.x.bf16, W: p.w.data, Y: p.y, Workspace: b.workspace}
	switch { // the bias has the result's type
	case s.Bias && s.Float:
		io.Bias = p.bias.float
	case s.Bias:
		io.Bias = p.bias.bf16
	}
	b.reads(p.w)
	b.runLt(plan, p.rows, io)
	s.M = 0
	b.ios[s] = io
}

// runLt queues a planned product.
func (b *Backend) runLt(plan *driver.LtPlan, rows int, io driver.LtIO) {
	b.fail("matmul", plan.Run(rows, io, b.stream))
	b.settled("matmul of cuBLASLt")
}

// plan returns the algorithm of a shape, or nil after an error.
func (b *Backend) plan(s driver.LtShape) *driver.LtPlan {
	plan, ok := b.plans[s]
	if !ok {
		var err error
		if plan, err = b.lt.Plan(s, workspaceBytes); err != nil {
			b.fail("matmul", err)
			return nil
		}
		b.plans[s] = plan
	}
	return plan
}

// LoadProducts chooses the algorithms of all products so far for up to rows rows, and runs each once with a few: the library
// loads a kernel when it is first run, which held some steps up by 3 to 15 ms (H200, Qwen3-8B's shape). What the
// products wrote last is undefined afterwards.
func (b *Backend) LoadProducts(rows int) error {
	leave, err := b.enter()
	if err != nil {
		return err
	}
	defer leave()
	for s, io := range b.ios {
		for s.M = ltRows(1); s.M <= ltRows(rows); s.M = ltRows(s.M + 1) {
			if _, ok := b.plans[s]; ok || b.err != nil {
				continue
			}
			if plan := b.plan(s); plan != nil {
				b.runLt(plan, min(8, rows), io)
			}
		}
	}
	err = b.err
	b.err = nil
	if e := b.stream.Synchronize(); err == nil && e != nil {
		err = fmt.Errorf("cuda: load products: %w", e)
	}
	return err
}

// ltRows is the row count for which an algorithm is chosen: the next of 8 steps
// between powers of two.
func ltRows(rows int) int {
	step := 8
	for step*16 < rows {
		step *= 2
	}
	return (rows + step - 1) / step * step
}
