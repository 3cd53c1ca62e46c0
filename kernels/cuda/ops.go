//go:build cuda

package cuda

import (
	"gorgonia.org/cu"

	"waybill/kernels"
)

// Embed sets dst [N, cols] to the rows of w named by Batch.Tokens.
func (b *Backend) Embed(dst kernels.Buffer, w kernels.Weight) {
	batch, m := b.step(), w.(*weight)
	for _, id := range batch.Tokens {
		if id < 0 || int(id) >= m.rows {
			panic(bug("token %d of a vocabulary of %d", id, m.rows))
		}
	}
	b.flush()
	n := len(batch.Tokens)
	if d, ok := dst.(*buffer); ok && d.bf16 == 0 {
		b.copyRows("embed", b.fn.copyRowsFloat, wide(dst, n*m.cols, "dst"), m.data, b.tables.tokenAt, n, m.cols)
		return
	}
	b.copyRows("embed", b.fn.copyRows, b.output(dst, n*m.cols, "dst"), m.data, b.tables.tokenAt, n, m.cols)
}

// Gather sets dst [M, cols] to the rows of x named by Batch.Logits.
func (b *Backend) Gather(dst, x kernels.Buffer, cols int) {
	batch := b.step()
	for _, i := range batch.Logits {
		if i < 0 || int(i) >= len(batch.Tokens) {
			panic(bug("logits of token %d of %d", i, len(batch.Tokens)))
		}
	}
	b.flush()
	m, n := len(batch.Logits), len(batch.Tokens)
	if d, ok := dst.(*buffer); ok && d.bf16 == 0 {
		// Twice as many halves.
		b.copyRows("gather", b.fn.copyRows, wide(dst, m*cols, "dst"), wide(x, n*cols, "x"), b.tables.logitAt, m, 2*cols)
		return
	}
	b.copyRows("gather", b.fn.copyRows, b.output(dst, m*cols, "dst"), b.input(x, n*cols, "x"), b.tables.logitAt, m, cols)
}

// copyRows copies the rows that a table names.
func (b *Backend) copyRows(what string, fn cu.Function, dst, src cu.DevicePtr, table, rows, cols int) {
	if rows == 0 {
		return
	}
	b.args.Reset().Ptr(dst).Ptr(src).Ptr(b.tables.at(table)).Int(cols)
	b.launch(what, fn, [3]int{rows, 1, 1}, 256, 0, &b.args)
}

// RMSNorm sets dst to the norm of each row of x.
func (b *Backend) RMSNorm(dst, x, w kernels.Buffer, rows, cols int, eps float32) {
	b.flush()
	if rows == 0 {
		return
	}
	checkRows(rows, cols)
	fn, from := b.fn.rmsNorm, cu.DevicePtr(0)
	if d, ok := x.(*buffer); ok && (d.bf16 == 0 || d.wide) {
		fn, from = b.fn.rmsNormFloat, wide(x, rows*cols, "x")
	} else {
		from = b.input(x, rows*cols, "x")
	}
	b.args.Reset().Ptr(b.output(dst, rows*cols, "dst")).Ptr(from).Ptr(parameter(w, cols, "w")).Int(cols).Float(eps)
	b.launch("rms_norm", fn, [3]int{rows, 1, 1}, normThreads(cols), 0, &b.args)
}

// AddRMSNorm adds x to residual, which is float32, then sets dst to its norm. If x is
// what the last MatMul was to make, all becomes one kernel and x is never written.
func (b *Backend) AddRMSNorm(dst, residual, x, w kernels.Buffer, rows, cols int, eps float32) {
	if b.fuseResidual(dst, residual, x, w, rows, cols, eps) {
		return
	}
	b.flush()
	if rows == 0 {
		return
	}
	checkRows(rows, cols)
	in := b.input(x, rows*cols, "x")
	b.args.Reset().Ptr(b.output(dst, rows*cols, "dst")).Ptr(wide(residual, rows*cols, "residual")).Ptr(in).Ptr(parameter(w, cols, "w")).Int(cols).Float(eps)
	b.launch("add_rms_norm", b.fn.addRMSNorm, [3]int{rows, 1, 1}, normThreads(cols), 0, &b.args)
}

// normThreads gives each thread 8 elements where a block can hold the row so.
func normThreads(cols int) int { return min(1024, max(32, (cols+255)/256*32)) }

func checkRows(rows, cols int) {
	if rows < 0 || cols <= 0 {
		panic(bug("shape [%d, %d]", rows, cols))
	}
}

// SiLUMul sets dst [rows, inner] = silu(gate) * up. If gateUp is what the last
// MatMul was to make, both become one kernel and gateUp is never written.
func (b *Backend) SiLUMul(dst, gateUp kernels.Buffer, rows, inner int) {
	if b.fuseGate(dst, gateUp, rows, inner) {
		return
	}
	b.flush()
	if rows == 0 {
		return
	}
	checkRows(rows, inner)
	in := b.input(gateUp, rows*2*inner, "gateUp")
	b.args.Reset().Ptr(b.output(dst, rows*inner, "dst")).Ptr(in).Int(rows).Int(inner)
	per := 256
	if inner%8 == 0 {
		per *= 8
	}
	b.launch("silu_mul", b.fn.siluMul, [3]int{(rows*inner + per - 1) / per, 1, 1}, 256, 0, &b.args)
}

// RopeAndCache normalises (if asked) and rotates q and k in place and writes k and v
// to the cache.
func (b *Backend) RopeAndCache(qkv kernels.Buffer, kv kernels.Cache, a kernels.QKV) {
	b.flush()
	batch, c := b.step(), kv.(*cache)
	checkLayer(c, a)
	n := len(batch.Tokens)
	for _, s := range batch.Slots {
		if s < -1 || int(s) >= c.spec.NumBlocks*c.spec.BlockSize {
			panic(bug("slot %d of a cache of %d", s, c.spec.NumBlocks*c.spec.BlockSize))
		}
	}
	if n == 0 {
		return
	}
	b.fused(qkv, n*a.Cols())
	b.steps.turn = turn{qkv: qkv.(*buffer), cache: c, a: a, rows: n, waiting: true}
	if !b.turns(c, a) {
		b.flush()
	}
}

// turn is a RopeAndCache that was asked for. It waits for Attention, with which it
// may be done in one kernel; then the rotated values go nowhere but to the cache.
type turn struct {
	qkv     *buffer
	cache   *cache
	a       kernels.QKV
	rows    int
	waiting bool
}

// norms returns the norms' weights, 0 where there are none.
func norms(a kernels.QKV) (q, k cu.DevicePtr) {
	if a.QNorm != nil {
		q = parameter(a.QNorm, a.HeadDim, "QNorm")
	}
	if a.KNorm != nil {
		k = parameter(a.KNorm, a.HeadDim, "KNorm")
	}
	return q, k
}

// fused returns the address of n elements of fused q, k, v rows and whether they are
// float32.
func (b *Backend) fused(qkv kernels.Buffer, n int) (p cu.DevicePtr, float bool) {
	if d, ok := qkv.(*buffer); ok && d.float != 0 && (d.wide || d.raw) {
		return parameter(qkv, n, "qkv"), true
	}
	return b.input(qkv, n, "qkv"), false
}

// queueTurn queues RopeAndCache as a kernel of its own.
func (b *Backend) queueTurn(r *turn) {
	t, a := &b.tables, &r.a
	qNorm, kNorm := norms(r.a)
	fn := b.fn.ropeCache
	from, float := b.fused(r.qkv, r.rows*a.Cols())
	groups := (a.NumHeads + 2*a.NumKVHeads + 7) / 8
	switch {
	case float && a.HeadDim == 128:
		fn, groups = b.fn.ropeFloat128, 1
	case float:
		fn = b.fn.ropeFloat
	}
	b.args.Reset().Ptr(b.output(r.qkv, r.rows*a.Cols(), "qkv")).Ptr(from).Ptr(r.cache.keys(a.Layer)).Ptr(r.cache.values(a.Layer)).
		Ptr(t.at(t.positionAt)).Ptr(t.at(t.slotAt)).Ptr(parameter(a.InvFreq, a.HeadDim/2, "InvFreq")).
		Ptr(qNorm).Ptr(kNorm).Int(a.NumHeads).Int(a.NumKVHeads).Int(a.HeadDim).Float(a.NormEps)
	b.launch("rope_cache", fn, [3]int{r.rows, groups, 1}, 256, 0, &b.args)
}

// checkLayer verifies that a is a layer of c.
func checkLayer(c *cache, a kernels.QKV) {
	s := &c.spec
	if a.Layer < 0 || a.Layer >= s.Layers || a.NumKVHeads != s.NumKVHeads || a.HeadDim != s.HeadDim ||
		a.NumHeads%a.NumKVHeads != 0 || a.HeadDim%2 != 0 || a.HeadDim > maxHeadDim {
		panic(bug("layer %d with %d and %d heads of %d, cache %+v", a.Layer, a.NumHeads, a.NumKVHeads, a.HeadDim, *s))
	}
}
