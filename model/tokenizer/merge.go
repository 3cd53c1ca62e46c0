package tokenizer

import "unicode/utf8"

// symbol is one id of a long piece that is being merged; symbols form a list in order of position.
type symbol struct {
	id         int32
	next, prev int32  // -1: none
	rank       uint32 // of the pair (this, next); noRank: no merge
	merged     int32  // what that pair becomes
}

// mergeStage is where a merger is with its piece.
type mergeStage uint8

const (
	mergeAll mergeStage = iota // of a small piece
	makeSymbols
	mergeSymbols
	handOut
)

// merger merges one piece: symbols first, then merges in order of (rank, position), then the ids. Pieces longer than
// smallPiece use list and heap, so that n symbols take n log n steps.
type merger struct {
	t     *Tokenizer
	piece string
	stage mergeStage
	pos   int     // in piece, while symbols are made
	made  []int32 // the last symbol and the ones made next
	at    int     // next symbol to hand out
	first int     // len(ids) before this piece

	small smallMerger
	syms  paged[symbol]
	heap  paged[uint64] // rank<<32 | symbol; an entry is stale when the symbol's rank has changed
}

// begin starts on a piece; idsBefore is the number of ids before its own.
func (m *merger) begin(piece string, idsBefore int) {
	m.piece, m.stage, m.pos, m.at, m.first = piece, makeSymbols, 0, 0, idsBefore
	if len(piece) <= smallPiece {
		m.stage = mergeAll
		return
	}
	m.syms.n, m.heap.n, m.made = 0, 0, m.made[:0]
}

// step works until the piece is done or the ticks are used up, and returns the ids with those added that are
// known so far.
func (m *merger) step(ids []int32, ticks *int) (_ []int32, done bool) {
	if m.stage == mergeAll {
		*ticks -= 18 * len(m.piece)
		ids = m.small.merge(m.t, ids, m.piece)
		m.t.remember(m.piece, ids[m.first:])
		return ids, true
	}
	for m.stage == makeSymbols && *ticks > 0 {
		if m.pos == len(m.piece) {
			m.stage = mergeSymbols
			m.at = min(m.syms.n, 1) - 1 // no symbol: nothing to hand out
			break
		}
		m.addSymbol()
		*ticks -= 10
	}
	for m.stage == mergeSymbols && *ticks > 0 {
		if m.heap.n == 0 {
			m.stage = handOut
			break
		}
		m.mergeTop()
		*ticks -= 40
	}
	for m.stage == handOut && *ticks > 0 {
		if m.at < 0 {
			m.t.remember(m.piece, ids[m.first:])
			return ids, true
		}
		s := m.syms.at(m.at)
		ids = append(ids, s.id)
		m.at = int(s.next)
		*ticks--
	}
	return ids, false
}

// addSymbol makes the symbol, or the fallback bytes, of the next byte or character.
func (m *merger) addSymbol() {
	before := len(m.made)
	m.made, m.pos = m.t.initial(m.made, m.piece, m.pos)
	for _, id := range m.made[before:] {
		i := m.syms.n
		m.syms.push(symbol{id: id, next: -1, prev: int32(i - 1), rank: noRank})
		if i > 0 {
			m.syms.at(i - 1).next = int32(i)
			m.relink(i - 1)
		}
	}
	if n := len(m.made); n > 1 {
		m.made = append(m.made[:0], m.made[n-1])
	}
}

// initial appends the ids that the byte or character at pos is before anything merges, and returns where the next one is.
// dst has what came before it in the piece.
func (t *Tokenizer) initial(dst []int32, piece string, pos int) (_ []int32, next int) {
	if t.sentence == nil {
		return t.orUnknown(dst, t.byteIDs[piece[pos]]), pos + 1
	}
	n := 1
	if piece[pos] >= utf8.RuneSelf {
		_, n = utf8.DecodeRuneInString(piece[pos:])
	}
	char := piece[pos : pos+n]
	if id, ok := t.pieces[char]; ok {
		return append(dst, id), pos + n
	}
	// Byte fallback is all or nothing: if one byte has no token, the character is unknown as a whole.
	for i := range n {
		if t.byteIDs[char[i]] < 0 {
			return t.orUnknown(dst, -1), pos + n
		}
	}
	for i := range n {
		dst = append(dst, t.byteIDs[char[i]])
	}
	return dst, pos + n
}

// orUnknown appends id, or what stands for a character without a token if id is -1.
func (t *Tokenizer) orUnknown(dst []int32, id int32) []int32 {
	if id < 0 {
		id = t.unk
		if id < 0 || t.fuseUnk && len(dst) > 0 && dst[len(dst)-1] == id {
			return dst
		}
	}
	return append(dst, id)
}

// queue puts the pair (i, next) on the heap, if it merges.
func (m *merger) queue(i int) {
	if r := m.syms.at(i).rank; r != noRank {
		m.pushHeap(uint64(r)<<32 | uint64(i))
	}
}

// mergeTop takes the lowest entry off the heap and does its merge, unless the entry is stale.
func (m *merger) mergeTop() {
	top := m.popHeap()
	i := int(uint32(top))
	s := m.syms.at(i)
	// Since the entry was made the pair has merged, or one side of it has become another symbol.
	if s.rank != uint32(top>>32) {
		return
	}
	gone := m.syms.at(int(s.next))
	s.id, s.next = s.merged, gone.next
	gone.rank = noRank // its entries on the heap are stale now
	if s.next >= 0 {
		m.syms.at(int(s.next)).prev = int32(i)
	}
	m.relink(i)
	if s.prev >= 0 {
		m.relink(int(s.prev))
	}
}

// relink looks up the pair (i, next) anew.
func (m *merger) relink(i int) {
	s := m.syms.at(i)
	s.rank = noRank
	if s.next >= 0 {
		s.rank, s.merged = m.t.pairs.find(s.id, m.syms.at(int(s.next)).id)
	}
	m.queue(i)
}

// The heap is written out, as container/heap would box every entry. Rank is in the high bits and position in the
// low ones, so comparing entries gives the lowest rank, leftmost first.
func (m *merger) pushHeap(v uint64) {
	h := &m.heap
	h.push(v)
	i := h.n - 1
	for i > 0 {
		up := (i - 1) / 2
		if *h.at(up) <= v {
			break
		}
		*h.at(i) = *h.at(up)
		i = up
	}
	*h.at(i) = v
}

func (m *merger) popHeap() uint64 {
	h := &m.heap
	top, last := *h.at(0), *h.at(h.n - 1)
	h.n--
	for i := 0; h.n > 0; {
		down := 2*i + 1
		if down+1 < h.n && *h.at(down + 1) < *h.at(down) {
			down++
		}
		if down >= h.n || *h.at(down) >= last {
			*h.at(i) = last
			break
		}
		*h.at(i) = *h.at(down)
		i = down
	}
	return top
}

// whole returns the id of a piece that is in the vocabulary and is taken as it is.
func (t *Tokenizer) whole(piece string) (int32, bool) {
	if !t.ignoreMerges || len(piece) > t.maxPieceLen {
		return -1, false
	}
	id, ok := t.pieces[piece]
	return id, ok
}
