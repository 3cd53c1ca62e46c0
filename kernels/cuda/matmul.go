//go:build cuda

package cuda

import (
	"gorgonia.org/cu"

	"waybill/kernels"
	"waybill/kernels/cuda/driver"
)

// product is a MatMul that was asked for. It waits for the next op, with which it
// may be done in one kernel.
type product struct {
	dst, x  kernels.Buffer
	y, in   cu.DevicePtr
	w       *weight
	bias    *buffer
	rows    int
	float   bool // y is float32
	waiting bool
}

// flush queues the product that waits.
func (b *Backend) flush() {
	if b.steps.pending.waiting {
		b.steps.pending.waiting = false
		b.multiply(&b.steps.pending)
	}
}

// MatMul sets dst [rows, w.Rows()] = x · wᵀ + bias.
func (b *Backend) MatMul(dst, x kernels.Buffer, w kernels.Weight, bias kernels.Buffer, rows int) {
	b.flush()
	m := w.(*weight)
	if rows < 0 {
		panic(bug("%d rows", rows))
	}
	p := product{dst: dst, x: x, w: m, rows: rows, in: activations(x, rows*m.cols, "x")}
	d, ok := dst.(*buffer)
	if !ok || d.n < rows*m.rows {
		panic(bug("dst: want %d elements, got %T of %d", rows*m.rows, dst, dst.Len()))
	}
	if p.y = d.bf16; p.y == 0 {
		p.y, p.float = d.float, true
	}
	if bias != nil {
		parameter(bias, m.rows, "bias")
		p.bias = bias.(*buffer)
	}
	if rows == 0 {
		return
	}
	if p.bias == nil && !p.float && streams(rows, m) && m.rows%32 == 0 {
		p.waiting = true
		b.steps.pending = p
		return
	}
	b.multiply(&p)
}

// fuseGate does the waiting product and the gated activation of its result at once.
func (b *Backend) fuseGate(dst, gateUp kernels.Buffer, rows, inner int) bool {
	p := &b.steps.pending
	if !p.waiting || p.dst != gateUp || p.rows != rows || p.w.rows != 2*inner {
		return false
	}
	p.waiting = false
	b.args.Reset().Ptr(activations(dst, rows*inner, "dst")).Ptr(p.in).Ptr(p.w.data).Ptr(0).Int(rows).Int(p.w.rows).Int(p.w.cols)
	b.launch("stream gated", b.fn.streamGate[streamIndex(rows)], [3]int{inner / 8, 1, 1}, 256, streamShared, &b.args)
	return true
}

// streams reports whether src/stream.cu takes a product.
func streams(rows int, w *weight) bool {
	return rows <= streamRows[len(streamRows)-1] && w.rows%16 == 0 && w.cols%32 == 0
}

func streamIndex(rows int) int {
	i := 0
	for streamRows[i] < rows {
		i++
	}
	return i
}

// multiply queues a product.
func (b *Backend) multiply(p *product) {
	var bias cu.DevicePtr
	if p.bias != nil {
		bias = p.bias.float
	}
	if p.float {
		b.steps.vocab = p.w.rows
	}
	b.args.Reset().Ptr(p.y).Ptr(p.in).Ptr(p.w.data).Ptr(bias).Int(p.rows).Int(p.w.rows).Int(p.w.cols)
	switch {
	case streams(p.rows, p.w):
		fn := b.fn.stream
		if p.float {
			fn = b.fn.streamFloat
		}
		b.launch("stream", fn[streamIndex(p.rows)], [3]int{p.w.rows / 16, 1, 1}, 256, streamShared, &b.args)
	case p.w.rows%8 == 0 && p.w.cols%8 == 0:
		b.multiplyLt(p)
	default:
		fn := b.fn.matmul
		if p.float {
			fn = b.fn.matmulFloat
		}
		b.launch("matmul", fn, [3]int{(p.rows*p.w.rows + 7) / 8, 1, 1}, 256, 0, &b.args)
	}
}

// multiplyLt queues a product of cuBLASLt. Algorithms are chosen once for each
// bucket of rows: asking takes some 50 µs, and chunks come in any length.
func (b *Backend) multiplyLt(p *product) {
	if b.err != nil {
		return
	}
	s := driver.LtShape{M: ltRows(p.rows), N: p.w.rows, K: p.w.cols, Float: p.float, Bias: p.bias != nil && !p.float}
	if p.bias != nil && p.float {
		panic(bug("a product of float32 with a bias"))
	}
	plan, ok := b.plans[s]
	if !ok {
		var err error
		if plan, err = b.lt.Plan(s, workspaceBytes); err != nil {
			b.fail("matmul", err)
			return
		}
		b.plans[s] = plan
	}
	io := driver.LtIO{X: p.in, W: p.w.data, Y: p.y, Workspace: b.workspace}
	if s.Bias {
		io.Bias = p.bias.bf16
	}
	b.fail("matmul", plan.Run(p.rows, io, b.stream))
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
