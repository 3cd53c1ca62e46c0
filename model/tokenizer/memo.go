package tokenizer

import (
	"hash/maphash"
	"sync/atomic"
)

// Limits of a memo. A text in the vocabulary's language has some thousand different words a megabyte, so 65,536
// slots hold the words of many texts; they take 512 kB, which stays in a core's second-level cache or near it.
// Measured on 350 kB of prose and program text: 16,384 slots miss twice as often, 262,144 no less.
const (
	memoSlots  = 1 << 16 // pieces remembered; a newer one replaces an older one of the same slot
	memoIDs    = 3       // most ids of a remembered piece: nearly all words of any text have no more
	memoIDBits = 20
	maxMemoID  = 1 << memoIDBits // larger ids are not remembered; the largest vocabulary known has 262,208
)

// memo remembers what merging pieces gave, without locks: a slot is one word, so it is read and written whole. The
// piece itself is not kept. Instead the texts of the ids must join to the piece, both when they are stored and when
// they are found: then the ids are what merging this very text gave, whatever else shares the slot.
type memo struct {
	seed  maphash.Seed
	slots []uint64 // number of ids in the two highest bits, 0: empty; then the ids, the first lowest. Atomic
}

func newMemo() memo { return memo{seed: maphash.MakeSeed(), slots: make([]uint64, memoSlots)} }

func (m *memo) slot(piece string) *uint64 {
	return &m.slots[maphash.String(m.seed, piece)&(memoSlots-1)]
}

// recall appends the ids that merging the piece gives, if they are remembered.
func (t *Tokenizer) recall(dst []int32, piece string) ([]int32, bool) {
	word := atomic.LoadUint64(t.memo.slot(piece))
	n, rest, length := word>>62, piece, len(dst)
	for ; n > 0; n-- {
		id := int32(word & (maxMemoID - 1))
		text := t.text[t.offsets[id]:t.offsets[id+1]]
		if len(text) > len(rest) || rest[:len(text)] != text {
			return dst[:length], false
		}
		dst, rest, word = append(dst, id), rest[len(text):], word>>memoIDBits
	}
	if rest != "" || len(dst) == length {
		return dst[:length], false
	}
	return dst, true
}

// remember keeps what merging the piece gave. Ids whose texts do not join to the piece are not kept: there,
// characters without a token were dropped or replaced.
func (t *Tokenizer) remember(piece string, ids []int32) {
	if len(ids) == 0 || len(ids) > memoIDs {
		return
	}
	word, rest := uint64(0), piece
	for i := len(ids) - 1; i >= 0; i-- {
		id := ids[i]
		text := t.TokenText(id)
		at := len(rest) - len(text)
		if id >= maxMemoID || at < 0 || rest[at:] != text {
			return
		}
		word, rest = word<<memoIDBits|uint64(id), rest[:at]
	}
	if rest == "" {
		atomic.StoreUint64(t.memo.slot(piece), word|uint64(len(ids))<<62)
	}
}
