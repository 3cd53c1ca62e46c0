package cpu

import (
	"waybill/kernels"
)

// rowOps are the ops that treat each row of activations alone; a task of theirs
// is cut by rows.

// elementsPerNs is the rough rate of the vector code of these ops on one core.
const elementsPerNs = 4

// rowTask is the part that their tasks share.
type rowTask struct {
	backend    *Backend
	rows, each int
}

// cut sets how many rows make a chunk, given a row's number of elements, and
// returns the number of chunks.
func (t *rowTask) cut(rows, elements int) int {
	if rows == 0 {
		return 0
	}
	t.rows, t.each = rows, chunkSize(rows, elements/elementsPerNs)
	return (rows + t.each - 1) / t.each
}

// span returns the rows of a chunk.
func (t *rowTask) span(chunk int) (first, end int) {
	return chunk * t.each, min((chunk+1)*t.each, t.rows)
}

// embedTask looks up rows of a weight.
type embedTask struct {
	rowTask
	dst    []float32
	weight *weight
}

// Embed sets dst [N, cols] to the rows of w named by Batch.Tokens.
func (b *Backend) Embed(dst kernels.Buffer, w kernels.Weight) {
	b.flush()
	t, m := &b.embed, w.(*weight)
	for i, id := range b.step().Tokens {
		if id < 0 || int(id) >= m.rows {
			panic(bug("token %d has id %d of %d", i, id, m.rows))
		}
	}
	n := len(b.batch.Tokens)
	t.dst, t.weight = floats(dst, n*m.cols, "dst"), m
	const costOfUnpacking = 8 // one element at a time, in Go
	b.pool.run(t, t.cut(n, m.cols*costOfUnpacking))
}

// run does the rows of a chunk.
func (t *embedTask) run(_, chunk int) {
	first, end := t.span(chunk)
	cols := t.weight.cols
	for i := first; i < end; i++ {
		t.weight.row(t.dst[i*cols:(i+1)*cols], int(t.backend.batch.Tokens[i]))
	}
}

// normTask is RMSNorm and AddRMSNorm.
type normTask struct {
	rowTask
	into kernels.Buffer // dst is its elements
	// dst and x are [rows, cols]; added is x's addend or nil.
	dst, x, added, weight []float32
	eps                   float32
}

// RMSNorm sets dst[r] = x[r] / sqrt(mean(x[r]²)+eps) * w.
func (b *Backend) RMSNorm(dst, x, w kernels.Buffer, rows, cols int, eps float32) {
	b.wait(dst, x, nil, w, rows, cols, eps)
}

// AddRMSNorm adds x to residual, then sets dst to RMSNorm(residual).
func (b *Backend) AddRMSNorm(dst, residual, x, w kernels.Buffer, rows, cols int, eps float32) {
	b.wait(dst, residual, floats(x, rows*cols, "x"), w, rows, cols, eps)
}

// wait sets the norm up, to be done with the product that follows or by flush.
func (b *Backend) wait(dst, x kernels.Buffer, added []float32, w kernels.Buffer, rows, cols int, eps float32) {
	b.flush()
	t := &b.norm
	t.into, t.dst, t.x, t.added = dst, floats(dst, rows*cols, "dst"), floats(x, rows*cols, "x"), added
	t.weight, t.eps, t.rows = floats(w, cols, "w"), eps, rows
	b.waiting = aNorm
	if b.batch == nil {
		b.flush()
	}
}

// all does all rows.
func (t *normTask) all() {
	t.backend.pool.run(t, t.cut(t.rows, 2*len(t.weight)))
}

// run does the rows of a chunk.
func (t *normTask) run(_, chunk int) {
	first, end := t.span(chunk)
	for r := first; r < end; r++ {
		t.row(r)
	}
}

// row does one row.
func (t *normTask) row(r int) {
	k, cols := t.backend.kernels, len(t.weight)
	x := t.x[r*cols : (r+1)*cols]
	if t.added != nil {
		k.add(x, t.added[r*cols:(r+1)*cols])
	}
	normRow(k, t.dst[r*cols:(r+1)*cols], x, t.weight, t.eps)
}

// normRow normalises one row; dst may be x.
func normRow(k *kernelSet, dst, x, w []float32, eps float32) {
	k.scale(dst, x, w, inverseRMS(k.sumSquares(x), len(x), eps))
}

// siluTask is SiLUMul.
type siluTask struct {
	rowTask
	into        kernels.Buffer // dst is its elements
	dst, gateUp []float32
	inner       int
}

// SiLUMul sets dst [rows, inner] = silu(gateUp[:, :inner]) * gateUp[:, inner:].
func (b *Backend) SiLUMul(dst, gateUp kernels.Buffer, rows, inner int) {
	t := &b.silu
	to, from := floats(dst, rows*inner, "dst"), floats(gateUp, 2*rows*inner, "gateUp")
	p := &b.product
	follows := b.waiting == aProduct && p.into == gateUp && p.rows == rows && p.weight.rows == 2*inner
	if !follows {
		b.flush()
	}
	t.into, t.dst, t.gateUp, t.inner, t.rows = dst, to, from, inner, rows
	if follows {
		b.waiting = aGate
		return
	}
	t.all()
}

// all does all rows.
func (t *siluTask) all() {
	t.backend.pool.run(t, t.cut(t.rows, 4*t.inner))
}

// run does the rows of a chunk.
func (t *siluTask) run(_, chunk int) {
	first, end := t.span(chunk)
	n := t.inner
	for r := first; r < end; r++ {
		row := t.gateUp[2*r*n : 2*(r+1)*n]
		t.backend.kernels.silu(t.dst[r*n:(r+1)*n], row[:n], row[n:])
	}
}
