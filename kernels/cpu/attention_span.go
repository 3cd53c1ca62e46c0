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
	// tiles is the end of the span's tiles, of tileBytes; far says that they are
	// worth asking for ahead of time.
	tiles, tileBytes int
	far              bool
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
	t, dim := w.task, w.task.layer.HeadDim
	q := unsafe.Slice((*float32)(w.scratch.q.at(0)), dim*w.rows)
	clear(q)
	for r := range w.heads * w.group.tokens {
		from := t.qkv[w.token(r)*t.layer.Cols()+(w.firstHead+r%w.heads)*dim:][:dim]
		for i, v := range from {
			q[i*w.rows+r] = v * t.layer.Scale
		}
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
	first, end = max(base, first&^(tileRows-1)), min(base+spanLen, end)
	clear(unsafe.Slice((*float32)(into.o), dim*w.rows))
	for r := range into.tops {
		into.tops[r], into.sums[r] = float32(math.Inf(-1)), lanes{}
	}
	if w.task.cache.spec.BlockSize%tileRows == 0 {
		w.locate(base, first, end)
		scores := w.kernels.scores[w.rows]
		w.ahead(&s.keyTiles, (first-base)/tileRows+1)
		for i := (first - base) / tileRows; i < w.tiles; i++ {
			w.ahead(&s.keyTiles, i+lead)
			scores(pointer(&s.scores[i*tileRows]), s.q.at(0), s.keyTiles[i], dim)
		}
		for i := range lead {
			w.ahead(&s.valueTiles, (first-base)/tileRows+i)
		}
	} else {
		scores := w.task.backend.kernels.attentionFor(kernels.F32, dim).scores[w.rows]
		for p := first; p < end; p += tileRows {
			scores(pointer(&s.scores[p-base]), s.q.at(0), w.gatherKeys(p, min(tileRows, end-p)), dim)
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
		if top := part.tops[r]; top > total.tops[r] {
			factor := exp32(total.tops[r] - top)
			k.scale(to, to, nil, factor)
			k.scale(total.sums[r][:], total.sums[r][:], nil, factor)
			total.tops[r] = top
		} else if top < total.tops[r] {
			factor := exp32(top - total.tops[r])
			k.scale(from, from, nil, factor)
			k.scale(part.sums[r][:], part.sums[r][:], nil, factor)
		}
		k.add(to, from)
		k.add(total.sums[r][:], part.sums[r][:])
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

// lead is how many tiles ahead memory is asked for.
const lead = 2

// locate looks the tiles of [first, end) up in the block table. It serves block
// sizes that are a multiple of a tile.
func (w *attentionWork) locate(base, first, end int) {
	s, c := w.scratch, w.task.cache
	size, dim := c.spec.BlockSize, c.spec.HeadDim
	for p := first; p < end; p += tileRows {
		at := c.keyHead(w.task.layer.Layer, w.kvHead, int(w.seq.Blocks[p/size])) + p%size*dim
		i := (p - base) / tileRows
		s.keyTiles[i], s.valueTiles[i] = c.address(at), c.address(at+c.layer)
	}
	w.tiles, w.tileBytes = (end-base+tileRows-1)/tileRows, tileRows*dim*c.size
	// Keys and values of a step of few tokens come from memory, those of a long
	// chunk are near.
	const long = 16
	w.far = w.seq.Len < long && w.task.backend.kernels.prefetch != nil
}

// ahead asks for tile i of the span, if there is one.
func (w *attentionWork) ahead(tiles *[spanLen / tileRows]pointer, i int) {
	if w.far && i < w.tiles {
		w.task.backend.kernels.prefetch(tiles[i], w.tileBytes)
	}
}

// gatherKeys returns a float32 tile of the n keys from position p, where a block
// does not hold whole tiles.
func (w *attentionWork) gatherKeys(p, n int) pointer {
	t, dst := w.task, w.scratch.keys.at(0)
	tile := unsafe.Slice((*float32)(dst), t.layer.HeadDim*tileRows)
	t.cache.keyTile(tile, t.layer.Layer, w.kvHead, w.seq.Blocks, p, n)
	return dst
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
	for r := 0; r < w.rows; r += mixRows {
		w.mixRows(into, w.kernels.mix4, r, base, common[0], common[1])
	}
	for t := range w.group.tokens {
		_, hi := w.sees(t)
		w.mixToken(into, t, base, common[1], min(hi, end))
	}
}

// mixToken adds positions [lo, hi) to one token's rows.
func (w *attentionWork) mixToken(into *attentionSums, token, base, lo, hi int) {
	for r := token * w.heads; r < (token+1)*w.heads; r++ {
		w.mixRows(into, w.kernels.mix1, r, base, lo, hi)
	}
}

// mixRows adds positions [lo, hi) to the rows from r, tile by tile, or block by
// block where a block does not hold whole tiles.
func (w *attentionWork) mixRows(into *attentionSums, kernel func(o, p, values pointer, n, dim int), r, base, lo, hi int) {
	s, c, dim := w.scratch, w.task.cache, w.task.layer.HeadDim
	o, size := unsafe.Add(into.o, 4*r*dim), c.spec.BlockSize
	if size%tileRows == 0 {
		for lo < hi {
			i, at := (lo-base)/tileRows, lo%tileRows
			if r == 0 {
				w.ahead(&s.valueTiles, i+lead)
			}
			n := min(hi-lo, tileRows-at)
			kernel(o, pointer(&s.scores[r*spanLen+lo-base]), unsafe.Add(s.valueTiles[i], at*dim*c.size), n, dim)
			lo += n
		}
		return
	}
	for lo < hi {
		n := min(hi-lo, size-lo%size)
		at := c.valueHead(w.task.layer.Layer, w.kvHead, int(w.seq.Blocks[lo/size])) + lo%size*dim
		kernel(o, pointer(&s.scores[r*spanLen+lo-base]), c.address(at), n, dim)
		lo += n
	}
}
