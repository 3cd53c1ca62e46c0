package kerneltest

import (
	"fmt"
	"testing"

	"waybill/kernels"
)

// Yardstick is what a backend's device can do at best, measured in the same run:
// figures of one run compare, those of two runs often do not.
type Yardstick struct {
	// BytesPerSecond is the rate of reading memory.
	BytesPerSecond float64
	// OpsPerSecond is the rate of multiplications plus additions of the matrix
	// units when nothing is read from memory.
	OpsPerSecond float64
}

// Measure benchmarks the ops of b at the sizes of SmolLM2-135M. It reports
// microseconds, GB/s, GOP/s, and the shares of the yardstick's two rates that
// were reached.
func Measure(t *testing.B, b kernels.Backend, y Yardstick) {
	m := &bench{t: t, under: b, best: y}
	s := SmolLM2
	for _, rows := range []int{1, 8, 512} {
		for _, d := range []kernels.DType{kernels.Q4_1, kernels.Q8_0, kernels.Q5_0, kernels.Q4_K, kernels.Q6_K, kernels.BF16, kernels.F32} {
			cols := s.Hidden
			if d.BlockElems() > 32 {
				cols = 512
			}
			// As many matrices as a model has: a single one would stay in the cache.
			var weights []kernels.Weight
			x, dst := m.zeros(rows*cols), m.zeros(rows*2*s.Inner)
			next := 0
			run := func() {
				for len(weights) < max(1, s.Layers/(1+rows/8)) {
					weights = append(weights, pack(t, b, kernels.HostTensor{Name: "w", DType: d, Rows: 2 * s.Inner, Cols: cols,
						Data: make([]byte, 2*s.Inner*d.RowBytes(cols))}))
				}
				b.MatMul(dst, x, weights[next%len(weights)], nil, rows)
				next++
			}
			name := fmt.Sprintf("MatMul/%v/rows=%d", d, rows)
			bytes := 2*s.Inner*d.RowBytes(cols) + 4*rows*(cols+2*s.Inner)
			m.rate(name, run, float64(bytes), 2*float64(rows*2*s.Inner*cols))
		}
	}
	const rows = 512
	h := float64(rows * s.Hidden * 4)
	x, y1, w := m.zeros(rows*s.Hidden), m.zeros(rows*s.Hidden), m.zeros(s.Hidden)
	m.rate("RMSNorm", func() { b.RMSNorm(y1, x, w, rows, s.Hidden, 1e-5) }, 2*h, 4*h/4)
	m.rate("AddRMSNorm", func() { b.AddRMSNorm(y1, x, x, w, rows, s.Hidden, 1e-5) }, 4*h, 5*h/4)
	gateUp, up := m.zeros(rows*2*s.Inner), m.zeros(rows*s.Inner)
	m.rate("SiLUMul", func() { b.SiLUMul(up, gateUp, rows, s.Inner) }, float64(3*4*rows*s.Inner), 0)
	for _, d := range kvTypes {
		m.attend(fmt.Sprintf("%v/prefill=512", d), d, Prefill(512))
		m.attend(fmt.Sprintf("%v/decode=8", d), d, Decode(8, 500))
	}
}

// zeros returns a buffer.
func (b *bench) zeros(n int) kernels.Buffer {
	buf, err := b.under.NewBuffer(n)
	if err != nil {
		b.t.Fatal(err)
	}
	return buf
}

// attend measures RopeAndCache and Attention over a batch.
func (b *bench) attend(name string, d kernels.DType, batch *kernels.Batch) {
	s := SmolLM2
	cache, err := b.under.NewCache(kernels.CacheSpec{Layers: 1, NumKVHeads: s.NumKVHeads, HeadDim: s.HeadDim, BlockSize: 16, NumBlocks: 8 * 32, DType: d})
	if err != nil {
		b.t.Fatal(err)
	}
	defer cache.Close()
	n := len(batch.Tokens)
	a := kernels.QKV{NumHeads: s.NumHeads, NumKVHeads: s.NumKVHeads, HeadDim: s.HeadDim, InvFreq: b.zeros(s.HeadDim / 2), Scale: 0.125}
	qkv, dst := b.zeros(n*a.Cols()), b.zeros(n*s.NumHeads*s.HeadDim)
	seen := 0
	for _, p := range batch.Positions {
		seen += int(p) + 1
	}
	within := func(f func()) func() {
		return func() {
			b.under.Begin(batch)
			f()
			b.under.End()
		}
	}
	b.rate("Rope/"+name, within(func() { b.under.RopeAndCache(qkv, cache, a) }), float64(n*a.Cols()*8), 0)
	b.rate("Attention/"+name, within(func() { b.under.Attention(dst, qkv, cache, a) }),
		float64(2*seen*s.NumKVHeads*s.HeadDim*d.BlockBytes()), float64(4*seen*s.NumHeads*s.HeadDim))
}

// rate benchmarks f, which moves bytes bytes and makes ops multiplications and
// additions; where one of them is 0 its rate is left out. Of attention, bytes
// counts the keys and values that every token reads: more than once from a cache.
func (b *bench) rate(name string, f func(), bytes, ops float64) {
	t := b.t.(*testing.B)
	t.Run(name, func(t *testing.B) {
		b.under.Begin(&kernels.Batch{})
		defer b.under.End()
		t.ReportAllocs()
		f()
		for t.Loop() {
			f()
		}
		seconds := t.Elapsed().Seconds() / float64(t.N)
		t.ReportMetric(seconds*1e6, "us")
		t.ReportMetric(0, "ns/op") // the line is long enough
		t.ReportMetric(bytes/seconds/1e9, "GB/s")
		t.ReportMetric(bytes/seconds/b.best.BytesPerSecond, "of-stream")
		if ops > 0 {
			t.ReportMetric(ops/seconds/1e9, "GOP/s")
			t.ReportMetric(ops/seconds/b.best.OpsPerSecond, "of-int8")
		}
	})
}
