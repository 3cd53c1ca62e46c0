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
	b.copyRows("embed", activations(dst, len(batch.Tokens)*m.cols, "dst"), m.data, b.tables.tokenAt, len(batch.Tokens), m.cols)
}

// Gather sets dst [M, cols] to the rows of x named by Batch.Logits.
func (b *Backend) Gather(dst, x kernels.Buffer, cols int) {
	batch := b.step()
	for _, i := range batch.Logits {
		if i < 0 || int(i) >= len(batch.Tokens) {
			panic(bug("logits of token %d of %d", i, len(batch.Tokens)))
		}
	}
	b.copyRows("gather", activations(dst, len(batch.Logits)*cols, "dst"), activations(x, len(batch.Tokens)*cols, "x"),
		b.tables.logitAt, len(batch.Logits), cols)
}

// copyRows copies the rows that a table names.
func (b *Backend) copyRows(what string, dst, src cu.DevicePtr, table, rows, cols int) {
	b.flush()
	if rows == 0 {
		return
	}
	b.args.Reset().Ptr(dst).Ptr(src).Ptr(b.tables.at(table)).Int(cols)
	b.launch(what, b.fn.copyRows, [3]int{rows, 1, 1}, 256, 0, &b.args)
}

// RMSNorm sets dst to the norm of each row of x.
func (b *Backend) RMSNorm(dst, x, w kernels.Buffer, rows, cols int, eps float32) {
	b.flush()
	if rows == 0 {
		return
	}
	checkRows(rows, cols)
	b.args.Reset().Ptr(activations(dst, rows*cols, "dst")).Ptr(activations(x, rows*cols, "x")).Ptr(parameter(w, cols, "w")).Int(cols).Float(eps)
	b.launch("rms_norm", b.fn.rmsNorm, [3]int{rows, 1, 1}, normThreads(cols), 0, &b.args)
}

// AddRMSNorm adds x to residual, then sets dst to the norm of the rounded sum.
func (b *Backend) AddRMSNorm(dst, residual, x, w kernels.Buffer, rows, cols int, eps float32) {
	b.flush()
	if rows == 0 {
		return
	}
	checkRows(rows, cols)
	b.args.Reset().Ptr(activations(dst, rows*cols, "dst")).Ptr(activations(residual, rows*cols, "residual")).
		Ptr(activations(x, rows*cols, "x")).Ptr(parameter(w, cols, "w")).Int(cols).Float(eps)
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
	b.args.Reset().Ptr(activations(dst, rows*inner, "dst")).Ptr(activations(gateUp, rows*2*inner, "gateUp")).Int(rows).Int(inner)
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
	var qNorm, kNorm cu.DevicePtr
	if a.QNorm != nil {
		qNorm = parameter(a.QNorm, a.HeadDim, "QNorm")
	}
	if a.KNorm != nil {
		kNorm = parameter(a.KNorm, a.HeadDim, "KNorm")
	}
	t := &b.tables
	b.args.Reset().Ptr(activations(qkv, n*a.Cols(), "qkv")).Ptr(c.keys(a.Layer)).Ptr(c.values(a.Layer)).
		Ptr(t.at(t.positionAt)).Ptr(t.at(t.slotAt)).Ptr(parameter(a.InvFreq, a.HeadDim/2, "InvFreq")).
		Ptr(qNorm).Ptr(kNorm).Int(a.NumHeads).Int(a.NumKVHeads).Int(a.HeadDim).Float(a.NormEps)
	b.launch("rope_cache", b.fn.ropeCache, [3]int{n, (a.NumHeads + 2*a.NumKVHeads + 7) / 8, 1}, 256, 0, &b.args)
}

// checkLayer verifies that a is a layer of c.
func checkLayer(c *cache, a kernels.QKV) {
	s := &c.spec
	if a.Layer < 0 || a.Layer >= s.Layers || a.NumKVHeads != s.NumKVHeads || a.HeadDim != s.HeadDim ||
		a.NumHeads%a.NumKVHeads != 0 || a.HeadDim%2 != 0 || a.HeadDim > maxHeadDim {
		panic(bug("layer %d with %d and %d heads of %d, cache %+v", a.Layer, a.NumHeads, a.NumKVHeads, a.HeadDim, *s))
	}
}
