package cpu

import (
	"math"
	"unsafe"

	"waybill/kernels"
)

// attentionWork is one item: a group and the query heads of a kv head.
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
	w.loadQueries()
	s := w.scratch
	first, end := w.positions()
	first &^= spanLen - 1
	if end-first <= spanLen {
		w.span(&s.total, first)
	} else {
		for base := first; base < end; base += spanLen {
			w.span(&s.part, base)
			w.fold(&s.part, base)
		}
	}
	w.finish()
}

// loadQueries sets q to the scaled queries of all rows.
func (w *attentionWork) loadQueries() {
	t, dim, n := w.task, w.task.layer.HeadDim, w.heads*w.group.tokens
	q := unsafe.Slice((*float32)(w.scratch.q.at(0)), dim*w.rows)
	for r := range n {
		from := t.qkv[w.token(r)*t.layer.Cols()+(w.firstHead+r%w.heads)*dim:][:dim]
		t.backend.kernels.scale(q[r*dim:(r+1)*dim], from, nil, t.layer.Scale)
	}
	clear(q[n*dim:])
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

// positions returns those that any token of the group attends to.
func (w *attentionWork) positions() (first, end int) {
	first, _ = w.sees(0)
	_, end = w.sees(w.group.tokens - 1)
	return first, end
}

// span sets into to the sums over the span that begins at base.
func (w *attentionWork) span(into *attentionSums, base int) {
	s, dim := w.scratch, w.task.layer.HeadDim
	first, end := w.positions()
	first, end = max(base, first&^(tilePair-1)), min(base+spanLen, end)
	clear(unsafe.Slice((*float32)(into.o), dim*w.rows))
	for r := range w.rows {
		into.tops[r], into.sums[r] = float32(math.Inf(-1)), lanes{}
	}
	if w.task.cache.spec.BlockSize%tileRows == 0 {
		i := (first - base) / tileRows
		tiles := w.locate(base, first, end) - i
		w.kernels.scores[w.rows](pointer(&s.scores[i*tileRows]), s.q.at(0), pointer(&s.keyTiles[i]), tiles, dim)
	} else {
		scores := w.task.backend.kernels.attentionFor(kernels.F32, dim).scores[w.rows]
		for p := first; p < end; p += tilePair {
			scores(pointer(&s.scores[p-base]), s.q.at(0), w.gatherKeys(p, end), tilePair/tileRows, dim)
		}
	}
	common := [2]int{base, end} // what all tokens see
	for t := range w.group.tokens {
		lo, hi := w.sees(t)
		common[0], common[1] = max(common[0], lo), min(common[1], hi)
		if lo, hi = max(lo, base), min(hi, end); lo < hi {
			for r := t * w.heads; r < (t+1)*w.heads; r++ {
				w.softmax(into, r, lo-base, hi-base)
			}
		}
	}
	w.mix(into, base, end, common)
}

// fold adds a span's sums to the total, for each row that sees the span.
func (w *attentionWork) fold(part *attentionSums, base int) {
	k, dim, total := w.task.backend.kernels, w.task.layer.HeadDim, &w.scratch.total
	for r := range w.heads * w.group.tokens {
		lo, hi := w.sees(r / w.heads)
		if max(lo, base) >= min(hi, base+spanLen) {
			continue
		}
		from, to := sumsOf(part, r, dim), sumsOf(total, r, dim)
		if lo >= base { // the row's first span
			copy(to, from)
			total.tops[r], total.sums[r] = part.tops[r], part.sums[r]
			continue
		}
		keep, take := float32(1), float32(1)
		if top := part.tops[r]; top > total.tops[r] {
			keep = exp32(total.tops[r] - top)
			total.tops[r] = top
		} else if top < total.tops[r] {
			take = exp32(top - total.tops[r])
		}
		k.blend(to, from, keep, take)
		k.blend(total.sums[r][:], part.sums[r][:], keep, take)
	}
}

// sumsOf returns row r of the weighted values.
func sumsOf(s *attentionSums, r, dim int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Add(s.o, 4*r*dim)), dim)
}

// finish divides the total by the sum of the weights.
func (w *attentionWork) finish() {
	t, dim, total := w.task, w.task.layer.HeadDim, &w.scratch.total
	for r := range w.heads * w.group.tokens {
		to := t.dst[(w.token(r)*t.layer.NumHeads+w.firstHead+r%w.heads)*dim:][:dim]
		t.backend.kernels.scale(to, sumsOf(total, r, dim), nil, 1/total.sums[r].sum())
	}
}

// locate looks the tiles of [first, end) up in the block table and returns the
// end of those of keys, counted from base. It serves block sizes that are a
// multiple of a tile.
func (w *attentionWork) locate(base, first, end int) int {
	s, c := w.scratch, w.task.cache
	size, dim := c.spec.BlockSize, c.spec.HeadDim
	n := (first - base) / tileRows
	for p := first; p < end; p += tileRows {
		at := c.keyHead(w.task.layer.Layer, w.kvHead, int(w.seq.Blocks[p/size])) + p%size*dim
		s.keyTiles[n], s.valueTiles[n] = c.address(at), c.address(at+c.layer)
		n++
	}
	tiles := n
	if n%(tilePair/tileRows) != 0 { // the pair's other tile: its scores are not used
		s.keyTiles[tiles] = s.keyTiles[n-1]
		tiles++
	}
	for i := range lead { // the first values are what comes after the keys
		s.keyTiles[tiles+i] = s.valueTiles[min((first-base)/tileRows+i, n-1)]
		s.valueTiles[n+i] = s.valueTiles[n-1]
	}
	return tiles
}

// gatherKeys returns a list of two float32 tiles of the keys from position p,
// where a block does not hold whole tiles.
func (w *attentionWork) gatherKeys(p, end int) pointer {
	t, s := w.task, w.scratch
	size := t.layer.HeadDim * tileRows
	for i := range s.few {
		s.few[i] = s.keys.at(4 * size * (i % 2))
	}
	for i := 0; i < tilePair/tileRows && p < end; i++ {
		tile := unsafe.Slice((*float32)(s.few[i]), size)
		t.cache.keyTile(tile, t.layer.Layer, w.kvHead, w.seq.Blocks, p, min(tileRows, end-p))
		p += tileRows
	}
	return pointer(&s.few[0])
}

// softmax turns the scores [lo, hi) of row r into weights, relative to the
// largest of them.
func (w *attentionWork) softmax(into *attentionSums, r, lo, hi int) {
	k := w.task.backend.kernels
	first, end := lo&^(tileRows-1), (hi+tileRows-1)&^(tileRows-1)
	row := w.scratch.scores[r*spanLen+first : r*spanLen+end]
	for i := range lo - first {
		row[i] = float32(math.Inf(-1))
	}
	for i := hi - first; i < len(row); i++ {
		row[i] = float32(math.Inf(-1))
	}
	top := k.max(row)
	into.tops[r] = top
	if math.IsInf(float64(top), -1) {
		top = 0 // all weights are zero, not the exponential of a NaN
	}
	k.exp(row, top, &into.sums[r])
}

// mix adds the weighted values of the span's positions to the rows' sums: those
// that all tokens see for several rows at once, before and after them what only
// some see. A value that a row does not see is not multiplied by a weight of
// zero, since it may be infinite.
func (w *attentionWork) mix(into *attentionSums, base, end int, common [2]int) {
	if common[0] >= common[1] {
		for t := range w.group.tokens {
			lo, hi := w.sees(t)
			w.mixToken(into, t, base, max(lo, base), min(hi, end))
		}
		return
	}
	for t := range w.group.tokens {
		lo, _ := w.sees(t)
		w.mixToken(into, t, base, max(lo, base), common[0])
	}
	w.mixAll(into, base, common[0], common[1])
	for t := range w.group.tokens {
		_, hi := w.sees(t)
		w.mixToken(into, t, base, common[1], min(hi, end))
	}
}

// mixToken adds positions [lo, hi) to one token's rows.
func (w *attentionWork) mixToken(into *attentionSums, token, base, lo, hi int) {
	s, dim := w.scratch, w.task.layer.HeadDim
	for lo < hi {
		values, n := w.valuesAt(base, lo)
		n = min(n, hi-lo)
		for r := token * w.heads; r < (token+1)*w.heads; r++ {
			w.kernels.mix[1](unsafe.Add(into.o, 4*r*dim), pointer(&s.scores[r*spanLen+lo-base]), values, n, dim)
		}
		lo += n
	}
}

// mixAll adds positions [lo, hi) to all rows.
func (w *attentionWork) mixAll(into *attentionSums, base, lo, hi int) {
	s, dim, mix := w.scratch, w.task.layer.HeadDim, w.kernels.mix[w.rows]
	whole := w.task.cache.spec.BlockSize%tileRows == 0
	for lo < hi {
		if whole && lo%tileRows == 0 {
			mix(into.o, pointer(&s.scores[lo-base]), pointer(&s.valueTiles[(lo-base)/tileRows]), hi-lo, dim)
			return
		}
		values, n := w.valuesAt(base, lo)
		n = min(n, hi-lo, tileRows)
		for i := range s.few {
			s.few[i] = values
		}
		mix(into.o, pointer(&s.scores[lo-base]), pointer(&s.few[0]), n, dim)
		lo += n
	}
}

// valuesAt returns where the value of position p lies, and how many follow one
// after another from there.
func (w *attentionWork) valuesAt(base, p int) (pointer, int) {
	c, dim := w.task.cache, w.task.layer.HeadDim
	size := c.spec.BlockSize
	if size%tileRows == 0 {
		at := p % tileRows
		return unsafe.Add(w.scratch.valueTiles[(p-base)/tileRows], at*dim*c.size), tileRows - at
	}
	at := c.valueHead(w.task.layer.Layer, w.kvHead, int(w.seq.Blocks[p/size])) + p%size*dim
	return c.address(at), size - p%size
}
