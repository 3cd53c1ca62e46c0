package cpu

import (
	"sync/atomic"

	"waybill/kernels"
)

// Attention works on groups: the query heads that share a kv head, of as many
// neighbouring tokens of a sequence as fit in attentionRows rows. Scores are
// lanes of their own. Spans of spanLen positions, counted from the first of the
// sequence, are softmaxed and summed up on their own, positions in order, and then
// folded into the row's total in the order of spans. Hence a row's result depends
// on the row and the cache alone, and several threads may share a long context.
const (
	// attentionRows is the rows of a group that are worked on together.
	attentionRows = 12
	// spanLen is the positions whose scores are held at once: 256 values of 64
	// float16 are two thirds of a first-level cache. It is a multiple of a tile.
	spanLen = 256
	// mixRows divides the rows that kernels do at once; rows are padded to it.
	mixRows = 4
	// tilePair is the positions of two tiles, which a kernel of scores does at once.
	tilePair = 2 * tileRows
	// lead is how many tiles ahead kernels ask for memory: a list of tiles has as
	// many addresses more.
	lead = 2
	// itemsPerThread is the number of items that are enough to keep all threads
	// busy to the end; with fewer, contexts are shared out by spans.
	itemsPerThread = 16
)

// scoresKernel sets dst[r*spanLen+16*i+lane] = Σ q[r*dim+d]*keys[i][d*16+lane], d in
// order, for an even number of tiles; keys is their addresses.
type scoresKernel func(dst, q, keys pointer, tiles, dim int)

// mixKernel adds Σ p[r*spanLen+j]*values[j/16][j%16*dim+d] to o[r*dim+d] for j < n,
// in order. values is addresses of tiles; that of one row alone takes an address of
// n values that lie one after another.
type mixKernel func(o, p, values pointer, n, dim int)

// attentionKernels is a level's code for one element type of the cache, indexed by
// rows: multiples of mixRows, and for mix 1.
type attentionKernels struct {
	scores [attentionRows + 1]scoresKernel
	mix    [attentionRows + 1]mixKernel
}

// attentionTask is Attention. An item is a group, a kv head, and a pass over it:
// more heads to a kv head than rows take several.
type attentionTask struct {
	backend  *Backend
	layer    kernels.QKV
	cache    *cache
	qkv, dst []float32
	groups   []tokenGroup
	passes   int
	each     int

	// units are the spans of all items, if they are shared out; the sums of unit
	// i are parts[i]. left counts an item's unfinished units.
	units  []attentionUnit
	parts  []attentionSums
	left   []atomic.Int32
	memory arena
}

// attentionUnit is a span of an item; first is the item's first unit.
type attentionUnit struct{ item, base, first int }

// tokenGroup is neighbouring tokens of a sequence.
type tokenGroup struct {
	seq, first, tokens int // first counts from the sequence's first in the batch
}

// attentionSums is what rows have summed up: weights relative to tops, their
// sums, and the weighted values o [row][dim].
type attentionSums struct {
	tops [attentionRows]float32
	sums [attentionRows]lanes
	o    pointer
}

// attentionScratch is one thread's memory for one item.
type attentionScratch struct {
	scores      [attentionRows * spanLen]float32
	part, total attentionSums
	// keyTiles and valueTiles are where the span's tiles lie; few is a short list.
	keyTiles, valueTiles [spanLen/tileRows + lead]pointer
	few                  [tilePair/tileRows + lead]pointer
	// q is [rows][dim], keys is two of [dim][16], o is that of part and total.
	q, o, keys arena
}

// Attention sets dst [N, numHeads*headDim] to causal attention of the q part of
// qkv over the cache.
func (b *Backend) Attention(dst, qkv kernels.Buffer, c kernels.Cache, a kernels.QKV) {
	b.flush()
	t := &b.attention
	n := len(b.step().Tokens)
	t.layer, t.cache = a, checkedCache(c, a)
	t.qkv, t.dst = floats(qkv, n*a.Cols(), "qkv"), floats(dst, n*a.NumHeads*a.HeadDim, "dst")
	t.groups, t.units = t.groups[:0], t.units[:0]
	heads := a.NumHeads / a.NumKVHeads
	perGroup := max(1, attentionRows/heads)
	t.passes = (heads + attentionRows - 1) / attentionRows
	scored := 0
	for i := range b.batch.Seqs {
		s := &b.batch.Seqs[i]
		if len(s.Blocks)*t.cache.spec.BlockSize < s.Context+s.Len {
			panic(bug("sequence %d has %d blocks for %d positions", i, len(s.Blocks), s.Context+s.Len))
		}
		for at := 0; at < s.Len; at += perGroup {
			g := tokenGroup{i, at, min(perGroup, s.Len-at)}
			t.groups = append(t.groups, g)
			scored += (s.Context + at + g.tokens) * g.tokens
		}
	}
	items := len(t.groups) * a.NumKVHeads * t.passes
	if items == 0 {
		return
	}
	rowBytes := 4 * a.HeadDim * attentionRows
	for i := range b.scratch {
		s := &b.scratch[i].attention
		s.q.grow(rowBytes)
		s.o.grow(2 * rowBytes)
		s.part.o, s.total.o = s.o.at(0), s.o.at(rowBytes)
		s.keys.grow(4 * a.HeadDim * tilePair)
	}
	if threads := b.options.Threads; threads > 1 && items < itemsPerThread*threads {
		t.share(items, rowBytes)
	}
	const fmaPerNs = 16
	chunks := max(items, len(t.units))
	t.each = chunkSize(chunks, 2*scored*a.NumHeads*a.HeadDim/chunks/fmaPerNs)
	b.pool.run(t, (chunks+t.each-1)/t.each)
}

// share lists the spans of all items, unless each item has only one.
func (t *attentionTask) share(items, rowBytes int) {
	for i := range items {
		w := t.item(i, nil)
		lo, hi := w.positions()
		first := len(t.units)
		for base := lo &^ (spanLen - 1); base < hi; base += spanLen {
			t.units = append(t.units, attentionUnit{i, base, first})
		}
	}
	if len(t.units) == items {
		t.units = t.units[:0]
		return
	}
	if n := len(t.units); n > len(t.parts) {
		t.parts = make([]attentionSums, n+n/4)
	}
	if items > len(t.left) {
		t.left = make([]atomic.Int32, items)
	}
	t.memory.grow(len(t.units) * rowBytes)
	for i := range items {
		t.left[i].Store(0)
	}
	for i, u := range t.units {
		t.parts[i].o = t.memory.at(i * rowBytes)
		t.left[u.item].Add(1)
	}
}

// run does a chunk of units, or of items where none are shared out.
func (t *attentionTask) run(thread, chunk int) {
	scratch := &t.backend.scratch[thread].attention
	if len(t.units) == 0 {
		items := len(t.groups) * t.layer.NumKVHeads * t.passes
		for i := chunk * t.each; i < min((chunk+1)*t.each, items); i++ {
			w := t.item(i, scratch)
			w.attend()
		}
		return
	}
	for i := chunk * t.each; i < min((chunk+1)*t.each, len(t.units)); i++ {
		u := t.units[i]
		w := t.item(u.item, scratch)
		w.loadQueries()
		w.span(&t.parts[i], u.base)
		if t.left[u.item].Add(-1) > 0 {
			continue
		}
		// Whoever is the last folds all of them, in order.
		for j := u.first; j < len(t.units) && t.units[j].item == u.item; j++ {
			w.fold(&t.parts[j], t.units[j].base)
		}
		w.finish()
	}
}

// item returns item i. The last groups of a prompt have the longest contexts and
// go first, so that the short ones fill the end.
func (t *attentionTask) item(i int, s *attentionScratch) attentionWork {
	pass, i := i%t.passes, i/t.passes
	g := t.groups[len(t.groups)-1-i/t.layer.NumKVHeads]
	kvHead := i % t.layer.NumKVHeads
	heads := t.layer.NumHeads / t.layer.NumKVHeads
	w := attentionWork{task: t, scratch: s, group: g, kvHead: kvHead,
		firstHead: kvHead*heads + pass*attentionRows, heads: min(heads-pass*attentionRows, attentionRows),
		kernels: t.backend.kernels.attentionFor(t.cache.spec.DType, t.layer.HeadDim),
		seq:     &t.backend.batch.Seqs[g.seq]}
	w.rows = (w.heads*g.tokens + mixRows - 1) &^ (mixRows - 1)
	return w
}
