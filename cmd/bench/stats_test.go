package bench

import (
	"math"
	"testing"
)

func TestPercentilesInterpolateLinearly(t *testing.T) {
	s := series{4, 1, 3, 2}
	for p, want := range map[float64]float64{0: 1, 25: 1.75, 50: 2.5, 90: 3.7, 99: 3.97, 100: 4} {
		if got := s.percentile(p); math.Abs(got-want) > 1e-12 {
			t.Errorf("p%g is %g, want %g", p, got, want)
		}
	}
	if s[0] != 4 {
		t.Error("the samples were sorted in place")
	}
	if got := (series{7}).percentile(99); got != 7 {
		t.Errorf("p99 of one sample is %g", got)
	}
	if got := s.std(); math.Abs(got-math.Sqrt(1.25)) > 1e-12 {
		t.Errorf("std %g, want that of the population, %g", got, math.Sqrt(1.25))
	}
	var none series
	if none.mean() != 0 || none.std() != 0 || none.percentile(50) != 0 {
		t.Error("figures of no samples are not 0")
	}
}
