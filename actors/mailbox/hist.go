package mailbox

import (
	"math"
	"math/bits"
	"sync/atomic"
)

// Histogram buckets: four per power of two, from 0 ns up to about 70 s. Relative
// error of a quantile is at most 1/4 of the value, enough to name a slow hop.
const (
	subBits  = 2
	histSize = (37-subBits)<<subBits + 2<<subBits
)

// Hist counts durations. One goroutine records, any may read; a reader may see
// a count that is a few samples old.
type Hist struct {
	count, sum, max atomic.Int64
	buckets         [histSize]atomic.Int64
}

// record adds one duration in nanoseconds; negative ones count as zero.
func (h *Hist) record(ns int64) {
	ns = max(ns, 0)
	h.count.Add(1)
	h.sum.Add(ns)
	if ns > h.max.Load() {
		h.max.Store(ns)
	}
	h.buckets[bucketOf(ns)].Add(1)
}

// bucketOf returns the index of the bucket that holds ns.
func bucketOf(ns int64) int {
	u := uint64(ns)
	if u < 1<<(subBits+1) {
		return int(u)
	}
	exp := bits.Len64(u) - 1 - subBits
	return min(exp<<subBits+int(u>>exp), histSize-1)
}

// bucketUpper returns the largest value of bucket i in nanoseconds; the last
// bucket is open.
func bucketUpper(i int) int64 {
	if i == histSize-1 {
		return math.MaxInt64
	}
	if i < 1<<(subBits+1) {
		return int64(i)
	}
	exp := i>>subBits - 1
	return (int64(i-exp<<subBits)+1)<<exp - 1
}

// Count returns the number of samples.
func (h *Hist) Count() int64 { return h.count.Load() }

// Sum returns the sum of all samples in nanoseconds.
func (h *Hist) Sum() int64 { return h.sum.Load() }

// Max returns the largest sample in nanoseconds.
func (h *Hist) Max() int64 { return h.max.Load() }

// Quantile returns an upper bound of the q-quantile (0..1) in nanoseconds, or 0
// without samples.
func (h *Hist) Quantile(q float64) int64 {
	total := h.count.Load()
	if total == 0 {
		return 0
	}
	want := int64(q*float64(total-1)) + 1
	var seen int64
	for i := range h.buckets {
		if seen += h.buckets[i].Load(); seen >= want {
			return min(bucketUpper(i), h.max.Load())
		}
	}
	return h.max.Load()
}

// Cumulative returns, for each bound in nanoseconds, how many samples are at
// most that long. Bounds ascend. A bucket counts for the first bound that holds
// all of it, so a count may lag by a quarter of the bound.
func (h *Hist) Cumulative(bounds []int64) []uint64 {
	out := make([]uint64, len(bounds))
	var seen uint64
	b := 0
	for i := range h.buckets {
		for b < len(bounds) && bucketUpper(i) > bounds[b] {
			out[b] = seen
			b++
		}
		seen += uint64(h.buckets[i].Load())
	}
	for ; b < len(bounds); b++ {
		out[b] = seen
	}
	return out
}
