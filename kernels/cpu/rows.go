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
	// dst and x are [rows, cols]; added is x's addend or nil.
	dst, x, added, weight []float32
	eps                   float32
}

// RMSNorm sets dst[r] = x[r] / sqrt(mean(x[r]²)+eps) * w.
func (b *Backend) RMSNorm(dst, x, w kernels.Buffer, rows, cols int, eps float32) {
	t := &b.norm
	t.dst, t.x, t.added = floats(dst, rows*cols, "dst"), floats(x, rows*cols, "x"), nil
	t.weight, t.eps = floats(w, cols, "w"), eps
	b.pool.run(t, t.cut(rows, cols))
}

// AddRMSNorm adds x to residual, then sets dst to RMSNorm(residual).
func (b *Backend) AddRMSNorm(dst, residual, x, w kernels.Buffer, rows, cols int, eps float32) {
	t := &b.norm
	t.dst, t.x, t.added = floats(dst, rows*cols, "dst"), floats(residual, rows*cols, "residual"), floats(x, rows*cols, "x")
	t.weight, t.eps = floats(w, cols, "w"), eps
	b.pool.run(t, t.cut(rows, 2*cols))
}

// run does the rows of a chunk.
func (t *normTask) run(_, chunk int) {
	first, end := t.span(chunk)
	k, cols := t.backend.kernels, len(t.weight)
	for r := first; r < end; r++ {
		x := t.x[r*cols : (r+1)*cols]
		if t.added != nil {
			k.add(x, t.added[r*cols:(r+1)*cols])
		}
		normRow(k, t.dst[r*cols:(r+1)*cols], x, t.weight, t.eps)
	}
}

// normRow normalises one row; dst may be x.
func normRow(k *kernelSet, dst, x, w []float32, eps float32) {
	k.scale(dst, x, w, inverseRMS(k.sumSquares(x), len(x), eps))
}

// siluTask is SiLUMul.
type siluTask struct {
	rowTask
	dst, gateUp []float32
	inner       int
}

// SiLUMul sets dst [rows, inner] = silu(gateUp[:, :inner]) * gateUp[:, inner:].
func (b *Backend) SiLUMul(dst, gateUp kernels.Buffer, rows, inner int) {
	t := &b.silu
	t.dst, t.gateUp, t.inner = floats(dst, rows*inner, "dst"), floats(gateUp, 2*rows*inner, "gateUp"), inner
	b.pool.run(t, t.cut(rows, 4*inner))
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
