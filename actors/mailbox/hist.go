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

// Hist counts durations. Any goroutine may record and read; a reader may see a
// count that is a few samples old, and of two samples recorded at once the larger
// may be missing from the maximum.
type Hist struct {
	count, sum, max atomic.Int64
	buckets         [histSize]atomic.Int64
}

// Record adds one duration in nanoseconds; negative ones count as zero.
func (h *Hist) Record(ns int64) { h.record(ns) }

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

// Window holds a histogram's counts at a moment: the past that a quantile of what
// came since is taken against. The zero value is the beginning.
type Window struct {
	count, sum int64
	buckets    [histSize]int64
}

// Since describes the samples recorded since an earlier Window.
type Since struct {
	// Count and SumNs are the number of samples and their sum in nanoseconds.
	Count, SumNs int64
	// P50 and P99 are upper bounds of the quantiles in nanoseconds, 0 without
	// samples.
	P50, P99 int64
}

// Since returns what was recorded since w was last passed, and moves w to now. w
// belongs to the caller.
func (h *Hist) Since(w *Window) Since {
	var now Window
	now.sum = h.sum.Load()
	for i := range h.buckets {
		now.buckets[i] = h.buckets[i].Load()
		now.count += now.buckets[i]
	}
	s := Since{Count: now.count - w.count, SumNs: now.sum - w.sum}
	quantile := func(q float64) int64 {
		want, seen := int64(q*float64(s.Count-1))+1, int64(0)
		for i := range now.buckets {
			if seen += now.buckets[i] - w.buckets[i]; seen >= want {
				return min(bucketUpper(i), h.max.Load())
			}
		}
		return 0
	}
	if s.Count > 0 {
		s.P50, s.P99 = quantile(.5), quantile(.99)
	}
	*w = now
	return s
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
