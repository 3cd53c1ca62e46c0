package bench

import (
	"math"
	"sort"
)

// series is a set of samples of one figure, in any order.
type series []float64

// mean returns 0 without samples, as vLLM's result does.
func (s series) mean() float64 {
	if len(s) == 0 {
		return 0
	}
	var sum float64
	for _, v := range s {
		sum += v
	}
	return sum / float64(len(s))
}

// std returns the standard deviation of the population, not of a sample.
func (s series) std() float64 {
	if len(s) == 0 {
		return 0
	}
	m := s.mean()
	var sum float64
	for _, v := range s {
		sum += (v - m) * (v - m)
	}
	return math.Sqrt(sum / float64(len(s)))
}

// percentile returns the p-th percentile (0 to 100) by linear interpolation
// between the two nearest samples, or 0 without samples.
func (s series) percentile(p float64) float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := append(series(nil), s...)
	sort.Float64s(sorted)
	at := p / 100 * float64(len(sorted)-1)
	low := int(math.Floor(at))
	if low >= len(sorted)-1 {
		return sorted[len(sorted)-1]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}
