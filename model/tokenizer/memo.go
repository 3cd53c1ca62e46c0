package tokenizer

import (
	"hash/maphash"
	"math"
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
)

// Limits of a memo, which takes 3 MB whatever is encoded. Of the 785,000 short pieces in 3 MB of Go source 0.8 % are not
// found when it is encoded again; with half the lines 2.2 %, with twice as many 0.3 % (2026-12). A miss costs ten times as
// much as a hit. Few pieces are frequent, so what a text uses of the memo stays in a core's second-level cache.
const (
	shortBytes = 15      // of the longest short piece; 15 bytes and the length fill two words
	shortIDs   = 3       // most ids of a short piece in its own entry: of English and program text 0.5 % have more
	shortLines = 1 << 15 // of two short pieces, 64 bytes each: 2 MB
	longIDs    = 9       // most ids of a remembered long piece, which may have any length
	longLines  = 1 << 14 // of two long pieces, 64 bytes each: 1 MB
	memoIDBits = 20
	maxMemoID  = 1 << memoIDBits // ids from here on are not remembered; the largest vocabulary known has 262,208
)

// memo remembers what merging pieces gave; a newer piece replaces an older one of the same line. An entry lies in one
// cache line, and no reader waits for anybody: an entry has a version, odd while it is written, and one whose version
// changes while it is read counts as not found. So does one that another goroutine is writing. All words are atomic.
type memo struct {
	seed  [2]uint64    // of short pieces, so that nobody can choose pieces that share a line
	long  maphash.Seed // the same of long ones
	short []shortLine
	longs []longLine
}

// shortLine has the entries of the short pieces with one hash.
type shortLine [2]shortEntry

// shortEntry holds the piece itself, so that a look-up touches nothing else.
type shortEntry struct {
	version uint64
	key     shortKey // zero: empty
	ids     uint64   // their number in the two highest bits; then the ids, the first lowest
}

// shortKey is a short piece: its bytes, the first lowest, zeros behind them, and its length in the highest byte.
type shortKey struct{ lo, hi uint64 }

// longLine has the entries of the long pieces with one hash.
type longLine [2]longEntry

// longEntry does not hold the piece. Instead the texts of the ids must join to the piece, both when they are stored and
// when they are found: then the ids are what merging this very text gave, whatever else shares the entry.
type longEntry struct {
	version uint64                    // the higher half is that of the piece's hash
	ids     [(longIDs + 2) / 3]uint64 // three in a word, the first lowest; their number in the four highest bits of the first
}

func newMemo() memo {
	return memo{
		seed: [2]uint64{rand.Uint64(), rand.Uint64()}, long: maphash.MakeSeed(),
		short: make([]shortLine, shortLines), longs: make([]longLine, longLines),
	}
}

// recall appends the ids that merging the piece gives, if they are remembered.
func (t *Tokenizer) recall(dst []int32, piece string) ([]int32, bool) {
	if len(piece) <= shortBytes {
		if ids := t.memo.recallShort(shortKeyOf(piece)); ids != 0 {
			return appendShort(dst, ids), true
		}
	}
	return t.recallLong(dst, piece)
}

// remember keeps what merging the piece gave. A short piece of many ids is kept as long ones are.
func (t *Tokenizer) remember(piece string, ids []int32) {
	if len(piece) <= shortBytes && len(ids) <= shortIDs {
		t.memo.rememberShort(shortKeyOf(piece), ids)
		return
	}
	t.rememberLong(piece, ids)
}

// shortKeyOf returns the key of a piece of at most shortBytes bytes.
func shortKeyOf(piece string) shortKey {
	var words [2]uint64
	for i := range len(piece) {
		words[i/8] |= uint64(piece[i]) << (i % 8 * 8)
	}
	return shortKey{words[0], words[1] | uint64(len(piece))<<56}
}

// shortKeyIn returns the key of a piece of n bytes, at most shortBytes, that is the start of 16 bytes.
func shortKeyIn(lo, hi uint64, n int) shortKey {
	mask := &keyMasks[n&15]
	return shortKey{lo & mask[0], hi&mask[1] | uint64(n)<<56}
}

// keyMasks has the bytes of a key that a piece of so many bytes fills.
var keyMasks = func() (masks [16][2]uint64) {
	for n := range masks {
		for i := range n {
			masks[n][i/8] |= 0xFF << (i % 8 * 8)
		}
	}
	return masks
}()

func (m *memo) shortLine(key shortKey) *shortLine {
	hi, lo := bits.Mul64(key.lo^m.seed[0], key.hi^m.seed[1])
	return &m.short[(hi^lo)%shortLines]
}

// recallShort returns the ids of a short piece as an entry holds them; 0: not remembered.
func (m *memo) recallShort(key shortKey) uint64 {
	line := m.shortLine(key)
	// Which of the two entries it is cannot be predicted, so no branch depends on it.
	other := 0
	if line[0].differs(key) != 0 {
		other = 1
	}
	e := &line[other]
	version := atomic.LoadUint64(&e.version)
	differs, ids := e.differs(key), atomic.LoadUint64(&e.ids)
	if differs|(version&1)|(version^atomic.LoadUint64(&e.version)) != 0 {
		return 0
	}
	return ids
}

// differs returns 0 if the entry's piece is that of the key.
func (e *shortEntry) differs(key shortKey) uint64 {
	return (atomic.LoadUint64(&e.key.lo) ^ key.lo) | (atomic.LoadUint64(&e.key.hi) ^ key.hi)
}

// appendShort appends ids as an entry holds them.
func appendShort(dst []int32, ids uint64) []int32 {
	dst = append(dst, int32(ids&(maxMemoID-1)))
	for n := ids >> 62; n > 1; n-- {
		ids >>= memoIDBits
		dst = append(dst, int32(ids&(maxMemoID-1)))
	}
	return dst
}

// rememberShort keeps the ids of a short piece, at most shortIDs.
func (m *memo) rememberShort(key shortKey, ids []int32) {
	if len(ids) == 0 {
		return
	}
	word := uint64(len(ids)) << 62
	for i, id := range ids {
		if id >= maxMemoID {
			return
		}
		word |= uint64(id) << (i * memoIDBits)
	}
	line := m.shortLine(key)
	e := &line[older(&line[0].version, &line[1].version)]
	if version, ok := claim(&e.version); ok {
		atomic.StoreUint64(&e.key.lo, key.lo)
		atomic.StoreUint64(&e.key.hi, key.hi)
		atomic.StoreUint64(&e.ids, word)
		atomic.StoreUint64(&e.version, version+2)
	}
}

// older returns which of two entries has been written less often: what it holds has been there for longer.
func older(first, second *uint64) int {
	if uint32(atomic.LoadUint64(second)) < uint32(atomic.LoadUint64(first)) {
		return 1
	}
	return 0
}

// claim makes a version odd, unless it is: then another goroutine is writing.
func claim(v *uint64) (version uint64, ok bool) {
	version = atomic.LoadUint64(v)
	return version, version&1 == 0 && atomic.CompareAndSwapUint64(v, version, version+1)
}

// longLine returns the line of a long piece, and the higher half of its hash where a version has it.
func (m *memo) longLine(piece string) (line *longLine, tag uint64) {
	hash := maphash.String(m.long, piece)
	return &m.longs[hash%longLines], hash &^ (1<<32 - 1)
}

// recallLong appends the ids of a long piece, if they are remembered.
func (t *Tokenizer) recallLong(dst []int32, piece string) ([]int32, bool) {
	line, tag := t.memo.longLine(piece)
	for i := range line {
		e := &line[i]
		version := atomic.LoadUint64(&e.version)
		if version&1 != 0 || version^tag > math.MaxUint32 {
			continue
		}
		words := [len(e.ids)]uint64{}
		for i := range words {
			words[i] = atomic.LoadUint64(&e.ids[i])
		}
		if atomic.LoadUint64(&e.version) != version {
			continue
		}
		length, rest := len(dst), piece
		for i := range words[0] >> 60 {
			id := int32(words[i/3] >> (i % 3 * memoIDBits) & (maxMemoID - 1))
			text := t.TokenText(id)
			if len(text) > len(rest) || rest[:len(text)] != text {
				break
			}
			dst, rest = append(dst, id), rest[len(text):]
		}
		if rest == "" {
			return dst, true
		}
		dst = dst[:length]
	}
	return dst, false
}

// rememberLong keeps the ids of a long piece. Ids whose texts do not join to the piece are not kept: there, characters
// without a token were dropped or replaced.
func (t *Tokenizer) rememberLong(piece string, ids []int32) {
	if len(ids) > longIDs {
		return
	}
	words := [len(longEntry{}.ids)]uint64{uint64(len(ids)) << 60}
	rest := piece
	for i, id := range ids {
		text := t.TokenText(id)
		if id >= maxMemoID || len(text) > len(rest) || rest[:len(text)] != text {
			return
		}
		words[i/3] |= uint64(id) << (i % 3 * memoIDBits)
		rest = rest[len(text):]
	}
	if rest != "" {
		return
	}
	line, tag := t.memo.longLine(piece)
	e := &line[older(&line[0].version, &line[1].version)]
	if version, ok := claim(&e.version); ok {
		for i, word := range words {
			atomic.StoreUint64(&e.ids[i], word)
		}
		atomic.StoreUint64(&e.version, tag|uint64(uint32(version+2)))
	}
}
