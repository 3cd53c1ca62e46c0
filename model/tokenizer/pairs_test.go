package tokenizer

import (
	"math/rand/v2"
	"testing"
)

// TestPairTableMatchesMap fills tables of all sizes and looks up what is in them and what is not.
func TestPairTableMatchesMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 3, 5, 10, 100, 5000} {
		p, want := newPairTable(n), map[[2]int32]uint32{}
		// Ids are few, so that pairs come again: of two merges of one pair the first counts.
		limit := max(2, n/50)
		for rank := range uint32(n) {
			pair := [2]int32{int32(rng.IntN(limit)), int32(rng.IntN(limit))}
			p.add(pair[0], pair[1], rank, int32(rank+7))
			if _, taken := want[pair]; !taken {
				want[pair] = rank
			}
		}
		if len(p.results()) != len(want) {
			t.Errorf("%d merges: %d in the table, want %d", n, len(p.results()), len(want))
		}
		for left := range int32(limit + 3) {
			for right := range int32(limit + 3) {
				rank, merged := p.find(left, right)
				wantRank, ok := want[[2]int32{left, right}]
				if !ok {
					wantRank = noRank
				}
				if rank != wantRank || ok && merged != int32(wantRank+7) {
					t.Errorf("%d merges: pair (%d, %d) has rank %d and gives %d, want rank %d", n, left, right, rank, merged, wantRank)
				}
			}
		}
	}
}
