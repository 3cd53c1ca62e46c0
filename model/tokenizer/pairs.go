package tokenizer

import (
	"math"
	"math/bits"
)

// pairTable maps a pair of adjacent ids to its merge: open addressing, at most half full. A Go map of the same
// content takes 4 times as long for a look-up that misses, which most do.
type pairTable struct {
	slots []pairMerge
	n     int
}

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
	size := 1 << bits.Len(uint(2*n+1))
	p := pairTable{slots: make([]pairMerge, size)}
	for i := range p.slots {
		p.slots[i].key = noPair
	}
	return p
}

// slot returns where the search for a key starts. Neighbouring ids are frequent in keys, so all bits are mixed.
func (p *pairTable) slot(key uint64) uint64 {
	hi, lo := bits.Mul64(key^0x5851F42D4C957F2D, hashMul)
	return (hi ^ lo) & uint64(len(p.slots)-1)
}

// add stores a merge; of two merges of one pair the first stays, as it has the lower rank.
func (p *pairTable) add(left, right int32, rank uint32, merged int32) {
	key := uint64(uint32(left))<<32 | uint64(uint32(right))
	i := p.slot(key)
	for ; p.slots[i].key != noPair; i = (i + 1) & uint64(len(p.slots)-1) {
		if p.slots[i].key == key {
			return
		}
	}
	p.slots[i] = pairMerge{key, uint64(rank)<<32 | uint64(uint32(merged))}
	p.n++
}

// find returns the rank of a pair and the id it merges to, or noRank.
func (p *pairTable) find(left, right int32) (uint32, int32) {
	key := uint64(uint32(left))<<32 | uint64(uint32(right))
	for i := p.slot(key); ; i = (i + 1) & uint64(len(p.slots)-1) {
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
