//go:build cuda

package cuda

import (
	"sync/atomic"
	"unsafe"

	"gorgonia.org/cu"

	"waybill/kernels"
	"waybill/kernels/cuda/driver"
)

const (
	// tableBytes bounds the tables of a step: 8192 tokens and two million entries
	// of block tables, 32 million tokens of context, fit.
	tableBytes = 16 << 20
	// maxSplits is how many pieces contexts are cut into, besides one for each row.
	// More make merging them cost more than their balance gains.
	maxSplits = 248
	// pieceStep is the granularity of pieces in tokens: 8 warps, 16 each.
	pieceStep = 128
	// minPieceSteps is the least length of a piece: what several pieces gain on a
	// shorter context is less than putting them together costs.
	minPieceSteps = 4
	// maxEditWords bounds the edits of logits of a step's draws, 1.4 million words.
	maxEditWords = 1400000
	// unitsPerSM is how many blocks of src/decode.cu a multiprocessor gets in turn:
	// enough to even out lengths.
	unitsPerSM = 2
)

// Words of the tables' head.
const (
	wordCount  = 0 // words in all
	wordStep   = 1 // the step's number
	wordPieces = 2 // pieces of decoding rows
	wordGate   = 3 // 0: the device waits before it reads the tables
	headWords  = 4
)

// tableShape decides where each table begins. Two steps of one shape have their
// tables at the same addresses.
type tableShape struct {
	tokens, seqs, logits int
	// decode is the number of sequences of one token, which come first; those behind
	// them are prefilled by the attention library.
	decode int
	// draws is the number of rows whose tokens are drawn.
	draws int
}

// tables are a step's inputs as the kernels read them.
type tables struct {
	// halves are pinned. Steps take them in turns, so that the next step's tables can be
	// written while the device may still read the running one's. host is the half in use.
	halves [2][]int32
	host   []int32
	device cu.DevicePtr
	tableShape
	// Word offsets.
	tokenAt, positionAt, slotAt, seqAt, logitAt, tableAt, rowAt, pieceAt, queryAt, pageAt, lastAt, drawAt, blockAt int
	words                                                                                                          int
	// pieces is the number of pieces; parts those of rows that have several.
	pieces, parts int
	// kvHeads and blockSize are those of the cache made last; only the cut into
	// pieces depends on kvHeads.
	kvHeads, blockSize int
	sms                int
	// prefillBlock is the offset of the first prefilled sequence's block table.
	prefillBlock int
}

// openTables makes the memory.
func (b *Backend) openTables() error {
	for i := range b.tables.halves {
		p, err := b.allocPinned(tableBytes)
		if err != nil {
			return err
		}
		b.tables.halves[i] = unsafe.Slice((*int32)(p), tableBytes/4)
	}
	b.tables.turn(0)
	b.tables.sms, b.tables.kvHeads, b.tables.blockSize = b.sms, 1, 16
	var err error
	b.tables.device, err = b.alloc(tableBytes)
	return err
}

// turn takes the half of a step's number.
func (t *tables) turn(number int32) { t.host = t.halves[number&1] }

// open lets the device read the tables, which must be complete.
func (t *tables) open() { atomic.StoreInt32(&t.host[wordGate], 1) }

// shapeOf returns the shape of a batch that is not replayed.
func (b *Backend) shapeOf(batch *kernels.Batch) tableShape {
	s := tableShape{tokens: len(batch.Tokens), seqs: len(batch.Seqs), logits: len(batch.Logits), draws: len(b.draws.rows)}
	for s.decode < s.seqs && batch.Seqs[s.decode].Len == 1 && batch.Seqs[s.decode].First == s.decode {
		s.decode++
	}
	return s
}

// layout places the tables.
func (t *tables) layout(s tableShape) {
	t.tableShape = s
	at := headWords
	place := func(words int) int {
		was := at
		at += (words + 3) &^ 3 // 16 bytes, the unit of the copy
		return was
	}
	t.tokenAt, t.positionAt, t.slotAt, t.seqAt = place(s.tokens), place(s.tokens), place(s.tokens), place(s.tokens)
	t.logitAt, t.tableAt = place(s.logits), place(s.seqs)
	t.rowAt, t.pieceAt = place(4*s.decode), place(4*(s.decode+maxSplits))
	t.queryAt, t.pageAt, t.lastAt = place(s.seqs-s.decode+1), place(s.seqs-s.decode+1), place(s.seqs-s.decode)
	t.drawAt = place(drawWords * s.draws)
	t.blockAt = at
}

// fill writes the tables of batch, which may have fewer rows than the layout; draws are
// the rows of logits that the device draws.
func (t *tables) fill(batch *kernels.Batch, draws []int) {
	h := t.host
	copy(h[t.tokenAt:], batch.Tokens)
	copy(h[t.positionAt:], batch.Positions)
	copy(h[t.slotAt:], batch.Slots)
	copy(h[t.logitAt:], batch.Logits)
	for i := len(batch.Tokens); i < t.tokens; i++ {
		h[t.tokenAt+i], h[t.positionAt+i], h[t.slotAt+i], h[t.seqAt+i] = 0, 0, -1, 0
	}
	for i := len(batch.Logits); i < t.logits; i++ {
		h[t.logitAt+i] = int32(i)
	}
	blocks := 0
	for i := range batch.Seqs {
		s := &batch.Seqs[i]
		for k := range s.Len {
			h[t.seqAt+s.First+k] = int32(i)
		}
		h[t.tableAt+i] = int32(blocks)
		// Exactly the blocks in use: the attention library takes the list as it is.
		n := (s.Context + s.Len + t.blockSize - 1) / t.blockSize
		if n > len(s.Blocks) {
			panic(bug("sequence %d of the batch has %d blocks of %d tokens, needs %d", i, len(s.Blocks), t.blockSize, n))
		}
		if t.blockAt+blocks+n > len(h) {
			panic(bug("the step's block tables take more than %d bytes", tableBytes))
		}
		copy(h[t.blockAt+blocks:], s.Blocks[:n])
		if i == t.decode {
			t.prefillBlock = blocks
		}
		blocks += n
	}
	t.cut(batch)
	t.indptr(batch)
	end := t.blockAt + blocks
	if t.draws > 0 {
		if end+maxEditWords > len(h) {
			panic(bug("the step's block tables leave no room for its draws"))
		}
		end = t.fillDraws(draws, batch, end)
	}
	t.words = (end + 3) &^ 3
	h[wordCount] = int32(t.words)
	h[wordPieces] = int32(t.pieces)
}

// cut shares the contexts of decoding rows out into pieces of about equal length.
func (t *tables) cut(batch *kernels.Batch) {
	h := t.host
	n := min(t.decode, len(batch.Seqs))
	total := 0
	for i := range n {
		total += batch.Seqs[i].Context + 1
	}
	want := max(1, min(maxSplits, t.sms*unitsPerSM/t.kvHeads))
	chunk := max(minPieceSteps*pieceStep, (total/want+pieceStep-1)/pieceStep*pieceStep)
	t.pieces, t.parts = 0, 0
	for i := range n {
		length := batch.Seqs[i].Context + 1
		parts := (length + chunk - 1) / chunk
		row := h[t.rowAt+4*i : t.rowAt+4*i+4]
		row[0], row[1], row[2], row[3] = h[t.tableAt+i], int32(parts), int32(t.parts), int32(length-1)
		for p := range parts {
			piece := h[t.pieceAt+4*t.pieces : t.pieceAt+4*t.pieces+4]
			piece[0], piece[1], piece[2], piece[3] = int32(i), int32(p*chunk), int32(min(length, (p+1)*chunk)), -1
			if parts > 1 {
				piece[3] = int32(t.parts)
				t.parts++
			}
			t.pieces++
		}
	}
}

// indptr writes the attention library's view of the prefilled sequences.
func (t *tables) indptr(batch *kernels.Batch) {
	h, pages := t.host, int32(0)
	for i := t.decode; i < len(batch.Seqs); i++ {
		s, k := &batch.Seqs[i], i-t.decode
		length := s.Context + s.Len
		h[t.queryAt+k], h[t.pageAt+k] = int32(s.First-t.decode), pages
		h[t.queryAt+k+1] = int32(s.First - t.decode + s.Len)
		pages += int32((length + t.blockSize - 1) / t.blockSize)
		h[t.pageAt+k+1] = pages
		h[t.lastAt+k] = int32((length-1)%t.blockSize + 1)
	}
}

// at returns the device address of a word.
func (t *tables) at(word int) cu.DevicePtr { return t.device + cu.DevicePtr(4*word) }

// queueTables copies the tables to the device, as the step's first kernel.
func (b *Backend) queueTables() {
	t := &b.tables
	b.args.Reset().Ptr(t.device).Ptr(cu.DevicePtr(uintptr(unsafe.Pointer(&t.host[0])))).Ptr(b.steps.started).Int(len(t.host)).
		Ptr(b.steps.sums).Int(sumSlots * maxWideRows)
	b.steps.norms = 0
	first := driver.Shape{Grid: [3]int{8, 1, 1}, Block: 256}
	b.fail("bind", first.Launch(b.fn.bind, b.stream, &b.args))
}

// maxParts bounds the pieces of rows that have several.
func (b *Backend) maxParts() int { return maxSplits + maxGraphRows }
