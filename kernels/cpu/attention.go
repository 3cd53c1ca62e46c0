package cpu

import (
	"math"
	"unsafe"

	"waybill/kernels"
)

// Attention works on groups: the query heads that share a kv head, of as many
// neighbouring tokens of a sequence as fit in attentionRows rows. Scores are
// lanes of their own, and the weighted sum of the values runs in the order of
// positions, so neither depends on how positions are cut into tiles. The softmax
// rescales its sums only at multiples of spanLen positions. Hence a row's result
// depends on the row and the cache alone.
const (
	// attentionRows is the rows of a group that are worked on together.
	attentionRows = 12
	// spanLen is the positions whose scores are held at once: 12 rows of 512
	// float32 are half of a first-level cache. It is a multiple of a tile.
	spanLen = 512
	// mixRows is the rows of one call of the kernel that adds up values.
	mixRows = 4
)

// attentionKernels is a level's code for one element type of the cache.
type attentionKernels struct {
	// scores sets dst[r*spanLen+lane] = Σ q[d*rows+r]*keys[d*16+lane], d in
	// order. It is indexed by rows, a multiple of 4.
	scores [attentionRows + 1]func(dst, q, keys pointer, dim int)
	// mix adds Σ p[r*spanLen+j]*values[j*dim+d] to o[r*dim+d] for j < n, in
	// order, for one row or for mixRows.
	mix1, mix4 func(o, p, values pointer, n, dim int)
}

// attentionTask is Attention.
type attentionTask struct {
	backend  *Backend
	layer    kernels.QKV
	cache    *cache
	qkv, dst []float32
	groups   []tokenGroup
	each     int
}

// tokenGroup is neighbouring tokens of a sequence.
type tokenGroup struct {
	seq, first, tokens int // first counts from the sequence's first in the batch
}

// attentionScratch is one thread's memory for one group.
type attentionScratch struct {
	scores [attentionRows * spanLen]float32
	sums   [attentionRows]lanes
	tops   [attentionRows]float32
	// q is [dim][rows], o is [rows][dim], keys is [dim][16].
	q, o, keys arena
}

// Attention sets dst [N, numHeads*headDim] to causal attention of the q part of
// qkv over the cache.
func (b *Backend) Attention(dst, qkv kernels.Buffer, c kernels.Cache, a kernels.QKV) {
	t := &b.attention
	n := len(b.step().Tokens)
	t.layer, t.cache = a, checkedCache(c, a)
	t.qkv, t.dst = floats(qkv, n*a.Cols(), "qkv"), floats(dst, n*a.NumHeads*a.HeadDim, "dst")
	t.groups = t.groups[:0]
	perGroup := max(1, attentionRows/(a.NumHeads/a.NumKVHeads))
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
	items := len(t.groups) * a.NumKVHeads
	if items == 0 {
		return
	}
	for i := range b.scratch {
		s := &b.scratch[i].attention
		s.q.grow(4 * a.HeadDim * attentionRows)
		s.o.grow(4 * a.HeadDim * attentionRows)
		s.keys.grow(4 * a.HeadDim * tileRows)
	}
	const fmaPerNs = 16
	t.each = chunkSize(items, 2*scored*a.NumHeads*a.HeadDim/items/fmaPerNs)
	b.pool.run(t, (items+t.each-1)/t.each)
}

// run does the groups of a chunk. The last groups of a prompt have the longest
// contexts and go first, so that the short ones fill the end.
func (t *attentionTask) run(thread, chunk int) {
	items := len(t.groups) * t.layer.NumKVHeads
	for i := chunk * t.each; i < min((chunk+1)*t.each, items); i++ {
		g := t.groups[len(t.groups)-1-i/t.layer.NumKVHeads]
		kvHead := i % t.layer.NumKVHeads
		heads := t.layer.NumHeads / t.layer.NumKVHeads
		// More heads to a kv head than rows: several passes over the keys.
		for h := 0; h < heads; h += attentionRows {
			w := attentionWork{task: t, scratch: &t.backend.scratch[thread].attention, group: g,
				kvHead: kvHead, firstHead: kvHead*heads + h, heads: min(heads-h, attentionRows)}
			w.attend()
		}
	}
}

// attentionWork is one group and kv head.
type attentionWork struct {
	task      *attentionTask
	scratch   *attentionScratch
	group     tokenGroup
	kvHead    int
	firstHead int
	heads     int // rows of a token
	rows      int // heads times tokens, rounded up to a multiple of mixRows
	kernels   *attentionKernels
	seq       *kernels.BatchSeq
}

// attend computes the group's rows.
func (w *attentionWork) attend() {
	t := w.task
	b, a, dim := t.backend, &t.layer, t.layer.HeadDim
	w.seq = &b.batch.Seqs[w.group.seq]
	w.rows = (w.heads*w.group.tokens + mixRows - 1) &^ (mixRows - 1)
	w.kernels = b.kernels.attentionFor(t.cache.spec.DType, dim)
	s := w.scratch
	q := unsafe.Slice((*float32)(s.q.at(0)), dim*w.rows)
	o := unsafe.Slice((*float32)(s.o.at(0)), dim*w.rows)
	clear(q)
	clear(o)
	for r := range w.heads * w.group.tokens {
		s.tops[r], s.sums[r] = float32(math.Inf(-1)), lanes{}
		from := t.qkv[w.token(r)*a.Cols()+(w.firstHead+r%w.heads)*dim:][:dim]
		for i, v := range from {
			q[i*w.rows+r] = v * a.Scale
		}
	}
	first, _ := w.sees(0)
	_, end := w.sees(w.group.tokens - 1)
	for at := first &^ (spanLen - 1); at < end; at += spanLen {
		w.span(max(at, first&^(tileRows-1)), at, min(at+spanLen, end))
	}
	for r := range w.heads * w.group.tokens {
		to := t.dst[(w.token(r)*a.NumHeads+w.firstHead+r%w.heads)*dim:][:dim]
		b.kernels.scale(to, o[r*dim:(r+1)*dim], nil, 1/s.sums[r].sum())
	}
}

// token returns the batch's index of the token of row r.
func (w *attentionWork) token(r int) int { return w.seq.First + w.group.first + r/w.heads }

// sees returns the positions [first, end) that a token of the group attends to.
func (w *attentionWork) sees(token int) (first, end int) {
	pos := w.seq.Context + w.group.first + token
	if win := w.task.layer.Window; win > 0 {
		first = max(0, pos-win+1)
	}
	return first, pos + 1
}

// span adds the positions [first, end) of the span that begins at base.
func (w *attentionWork) span(first, base, end int) {
	s, dim := w.scratch, w.task.layer.HeadDim
	for p := first; p < end; p += tileRows {
		keys := w.keys(p, min(tileRows, end-p))
		keys.scores[w.rows](pointer(&s.scores[p-base]), s.q.at(0), keys.tile, dim)
	}
	common := [2]int{base, end} // what all tokens see
	for t := range w.group.tokens {
		lo, hi := w.sees(t)
		common[0], common[1] = max(common[0], lo), min(common[1], hi)
		if lo, hi = max(lo, base), min(hi, end); lo < hi {
			for r := t * w.heads; r < (t+1)*w.heads; r++ {
				w.softmax(r, lo-base, hi-base)
			}
		}
	}
	w.mix(base, end, common)
}

// keyTile is a tile of keys and the kernels for its element type.
type keyTile struct {
	*attentionKernels
	tile pointer
}

// keys returns the tile of keys at position p, of which n are wanted.
func (w *attentionWork) keys(p, n int) keyTile {
	t := w.task
	size := t.cache.spec.BlockSize
	if size%tileRows == 0 {
		at, _ := t.cache.strip(p % size)
		at += t.cache.keyHead(t.layer.Layer, w.kvHead, int(w.seq.Blocks[p/size]))
		return keyTile{w.kernels, t.cache.address(at)}
	}
	dst := w.scratch.keys.at(0)
	tile := unsafe.Slice((*float32)(dst), t.layer.HeadDim*tileRows)
	t.cache.keyTile(tile, t.layer.Layer, w.kvHead, w.seq.Blocks, p, n)
	return keyTile{t.backend.kernels.attentionFor(kernels.F32, t.layer.HeadDim), dst}
}

// softmax turns the scores [lo, hi) of row r into weights, relative to the
// largest score so far, and rescales what the row has summed up.
func (w *attentionWork) softmax(r, lo, hi int) {
	s, k, dim := w.scratch, w.task.backend.kernels, w.task.layer.HeadDim
	first, end := lo&^(tileRows-1), (hi+tileRows-1)&^(tileRows-1)
	row := s.scores[r*spanLen+first : r*spanLen+end]
	for i := range lo - first {
		row[i] = float32(math.Inf(-1))
	}
	for i := hi - first; i < len(row); i++ {
		row[i] = float32(math.Inf(-1))
	}
	top := max(s.tops[r], k.max(row))
	if top > s.tops[r] && !math.IsInf(float64(s.tops[r]), -1) {
		factor := exp32(s.tops[r] - top)
		o := unsafe.Slice((*float32)(s.o.at(4*r*dim)), dim)
		k.scale(o, o, nil, factor)
		for i := range s.sums[r] {
			s.sums[r][i] *= factor
		}
	}
	s.tops[r] = top
	k.exp(row, top, &s.sums[r])
}

// mix adds the weighted values of the span's positions to the rows' sums: those
// that all tokens see for several rows at once, before and after them what only
// some see. A value that a row does not see is not multiplied by a weight of
// zero, since it may be infinite.
func (w *attentionWork) mix(base, end int, common [2]int) {
	if common[0] >= common[1] {
		for t := range w.group.tokens {
			lo, hi := w.sees(t)
			w.mixToken(t, base, max(lo, base), min(hi, end))
		}
		return
	}
	for t := range w.group.tokens {
		lo, _ := w.sees(t)
		w.mixToken(t, base, max(lo, base), common[0])
	}
	for r := 0; r < w.rows; r += mixRows {
		w.mixRows(w.kernels.mix4, r, base, common[0], common[1])
	}
	for t := range w.group.tokens {
		_, hi := w.sees(t)
		w.mixToken(t, base, common[1], min(hi, end))
	}
}

// mixToken adds positions [lo, hi) to one token's rows.
func (w *attentionWork) mixToken(token, base, lo, hi int) {
	for r := token * w.heads; r < (token+1)*w.heads; r++ {
		w.mixRows(w.kernels.mix1, r, base, lo, hi)
	}
}

// mixRows adds positions [lo, hi) to the rows from r, block after block.
func (w *attentionWork) mixRows(kernel func(o, p, values pointer, n, dim int), r, base, lo, hi int) {
	t, s, dim := w.task, w.scratch, w.task.layer.HeadDim
	size := t.cache.spec.BlockSize
	for lo < hi {
		n := min(hi-lo, size-lo%size)
		at := t.cache.valueHead(t.layer.Layer, w.kvHead, int(w.seq.Blocks[lo/size])) + lo%size*dim
		kernel(s.o.at(4*r*dim), pointer(&s.scores[r*spanLen+lo-base]), t.cache.address(at), n, dim)
		lo += n
	}
}
