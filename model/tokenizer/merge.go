package tokenizer

import "unicode/utf8"

// symbol is one id of a piece that is being merged; symbols form a list in order of position.
type symbol struct {
	id         int32
	next, prev int32  // -1: none
	rank       uint32 // of the pair (this, next); noRank: no merge
	merged     int32  // what that pair becomes
}

// smallPiece is the number of symbols up to which a scan for the lowest rank replaces list and heap (measured:
// equal at about 40).
const smallPiece = 32

// mergeStage is where a merger is with its piece.
type mergeStage uint8

const (
	makeSymbols mergeStage = iota
	mergeSymbols
	handOut
)

// merger merges one piece: symbols first, then merges in order of (rank, position), then the ids. Pieces longer
// than smallPiece use list and heap, so that n symbols take n log n steps.
type merger struct {
	t     *Tokenizer
	piece string
	stage mergeStage
	pos   int // in piece, while symbols are made
	n     int // symbols made
	at    int // next symbol to hand out
	first int // len(ids) before this piece

	small [smallPiece]symbol // the symbols, as long as they fit
	syms  paged[symbol]      // all of them, when they do not
	heap  paged[uint64]      // rank<<32 | symbol; an entry is stale when the symbol's rank has changed
}

// begin starts on a piece; idsBefore is the number of ids before its own.
func (m *merger) begin(piece string, idsBefore int) {
	m.piece, m.stage, m.pos, m.n, m.at, m.first = piece, makeSymbols, 0, 0, 0, idsBefore
	m.syms.n, m.heap.n = 0, 0
}

// step works until the piece is done or the ticks are used up, and returns the ids with those added that are
// known so far.
func (m *merger) step(ids []int32, ticks *int) (_ []int32, done bool) {
	for m.stage == makeSymbols && *ticks > 0 {
		if m.pos == len(m.piece) {
			m.stage = mergeSymbols
			break
		}
		m.addSymbol()
		*ticks -= 10
	}
	if m.stage == mergeSymbols && m.n <= smallPiece {
		*ticks -= 8 * m.n
		ids = m.mergeSmall(ids)
		m.t.remember(m.piece, ids[m.first:])
		return ids, true
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
	t := m.t
	if t.sentence == nil {
		m.push(t.byteIDs[m.piece[m.pos]])
		m.pos++
		return
	}
	n := 1
	if m.piece[m.pos] >= utf8.RuneSelf {
		_, n = utf8.DecodeRuneInString(m.piece[m.pos:])
	}
	char := m.piece[m.pos : m.pos+n]
	m.pos += n
	// Byte fallback is all or nothing: if one byte has no token, the character is unknown as a whole.
	if id, ok := t.pieces[char]; ok {
		m.push(id)
		return
	}
	for i := range len(char) {
		if t.byteIDs[char[i]] < 0 {
			m.push(-1)
			return
		}
	}
	for i := range len(char) {
		m.push(t.byteIDs[char[i]])
	}
}

// push appends a symbol; id -1 is a character without a token.
func (m *merger) push(id int32) {
	if id < 0 {
		id = m.t.unk
		if id < 0 || m.t.fuseUnk && m.n > 0 && m.symbol(m.n-1).id == id {
			return
		}
	}
	if m.n == smallPiece {
		m.spill()
	}
	s := symbol{id: id, next: -1, prev: int32(m.n - 1), rank: noRank}
	if m.n < smallPiece {
		m.small[m.n] = s
	} else {
		m.syms.push(s)
	}
	m.n++
	if m.n > 1 {
		// The pair that this symbol completes.
		prev := m.symbol(m.n - 2)
		prev.next = int32(m.n - 1)
		prev.rank, prev.merged = m.t.pairs.find(prev.id, id)
		if m.n > smallPiece {
			m.queue(m.n - 2)
		}
	}
}

// symbol returns symbol i, wherever the symbols are.
func (m *merger) symbol(i int) *symbol {
	if m.syms.n == 0 {
		return &m.small[i]
	}
	return m.syms.at(i)
}

// spill moves the symbols to the list when they outgrow the small array.
func (m *merger) spill() {
	for i := range smallPiece {
		m.syms.push(m.small[i])
	}
	for i := range smallPiece {
		m.queue(i)
	}
}

// queue puts the pair (i, next) on the heap, if it merges.
func (m *merger) queue(i int) {
	if r := m.syms.at(i).rank; r != noRank {
		m.pushHeap(uint64(r)<<32 | uint64(i))
	}
}

// mergeSmall merges by scanning for the lowest rank, leftmost first.
func (m *merger) mergeSmall(ids []int32) []int32 {
	s := m.small[:m.n]
	for {
		best, at := noRank, -1
		for i := range s {
			if s[i].rank < best {
				best, at = s[i].rank, i
			}
		}
		if at < 0 {
			break
		}
		// Moving the rest down costs less than a list at this size.
		s[at].id = s[at].merged
		copy(s[at+1:], s[at+2:])
		s = s[:len(s)-1]
		m.pairUp(s, at)
		m.pairUp(s, at-1)
	}
	for i := range s {
		ids = append(ids, s[i].id)
	}
	return ids
}

// pairUp looks up the pair (i, i+1) anew.
func (m *merger) pairUp(s []symbol, i int) {
	switch {
	case i < 0:
	case i+1 >= len(s):
		s[i].rank = noRank
	default:
		s[i].rank, s[i].merged = m.t.pairs.find(s[i].id, s[i+1].id)
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
