package tokenizer

import (
	"math"
	"math/bits"
)

// pairTable maps a pair of adjacent ids to its merge: open addressing, at most two thirds full. A Go map of the same
// content takes 4 times as long for a look-up that misses, which most do. Most of these end at the filter, which is small
// enough to stay in the caches.
type pairTable struct {
	slots  []pairMerge
	filter []uint64 // a bit for each of filterBits hashes of a slot; 1: look there
	shift  uint8    // of a hash, to get a slot
	n      int
}

// filterBits is the binary logarithm of how many bits the filter has for a slot: of the pairs that do not merge one in 12
// passes.
const filterBits = 3

// pairMerge is a slot: key and merge side by side, so that a hit costs one cache line.
type pairMerge struct {
	key   uint64 // left<<32 | right; noPair: empty
	merge uint64 // rank<<32 | merged id
}

const (
	noPair         = ^uint64(0)
	noRank  uint32 = math.MaxUint32
	hashMul        = 0x9E3779B97F4A7C15 // 2^64 / golden ratio
)

func newPairTable(n int) pairTable {
	width := max(bits.Len(uint(n+n/2)), 6-filterBits)
	p := pairTable{
		slots:  make([]pairMerge, 1<<width),
		filter: make([]uint64, 1<<(width+filterBits-6)),
		shift:  uint8(64 - width),
	}
	for i := range p.slots {
		p.slots[i].key = noPair
	}
	return p
}

// hash mixes all bits of a key into the highest, as neighbouring ids are frequent in keys. Those say where the search for
// the key starts, and with filterBits more which bit of the filter is its.
func hash(key uint64) uint64 { return key * hashMul }

// bit returns the bit of the filter that is a hash's: the index of its word, and its place in that.
func (p *pairTable) bit(hash uint64) (word, place uint64) {
	n := hash >> (p.shift - filterBits)
	return n / 64, n % 64
}

// add stores a merge; of two merges of one pair the first stays, as it has the lower rank.
func (p *pairTable) add(left, right int32, rank uint32, merged int32) {
	key := uint64(uint32(left))<<32 | uint64(uint32(right))
	h := hash(key)
	i := h >> p.shift
	for ; p.slots[i].key != noPair; i = (i + 1) & uint64(len(p.slots)-1) {
		if p.slots[i].key == key {
			return
		}
	}
	p.slots[i] = pairMerge{key, uint64(rank)<<32 | uint64(uint32(merged))}
	word, place := p.bit(h)
	p.filter[word] |= 1 << place
	p.n++
}

// find returns the rank of a pair and the id it merges to, or noRank.
func (p *pairTable) find(left, right int32) (uint32, int32) {
	key := uint64(uint32(left))<<32 | uint64(uint32(right))
	h := hash(key)
	if word, place := p.bit(h); p.filter[word]>>place&1 == 0 {
		return noRank, -1
	}
	for i := h >> p.shift; ; i = (i + 1) & uint64(len(p.slots)-1) {
		switch s := &p.slots[i]; s.key {
		case key:
			return uint32(s.merge >> 32), int32(uint32(s.merge))
		case noPair:
			return noRank, -1
		}
	}
}

// results lists the ids that merges give.
func (p *pairTable) results() []int32 {
	var ids []int32
	for _, s := range p.slots {
		if s.key != noPair {
			ids = append(ids, int32(uint32(s.merge)))
		}
	}
	return ids
}
