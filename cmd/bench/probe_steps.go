package bench

import (
	"sort"
	"time"
)

// stepEnds finds the ends of the server's steps in the arrivals of k streams'
// events: a step's tokens arrive in a burst, and the burst's first arrival stands
// for its end. A burst ends at k events or at a gap longer than half of the usual
// time between bursts.
func stepEnds(stamps []time.Time, k int) []time.Time {
	sorted := append([]time.Time(nil), stamps...)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].Before(sorted[j]) })
	if len(sorted) < 2*k {
		return nil
	}
	// k events a step: every k-th arrival is one step later, whatever the burst's
	// shape. Half of the median of those is a gap that no burst has.
	var steps []time.Duration
	for i := k; i < len(sorted); i++ {
		steps = append(steps, sorted[i].Sub(sorted[i-k]))
	}
	limit := median(steps) / 2
	ends := sorted[:1:1]
	for i := 1; i < len(sorted); i++ {
		if sorted[i].Sub(ends[len(ends)-1]) > limit {
			ends = append(ends, sorted[i])
		}
	}
	return ends
}

// lengths returns the differences of neighbours.
func lengths(ends []time.Time) []time.Duration {
	var out []time.Duration
	for i := 1; i < len(ends); i++ {
		out = append(out, ends[i].Sub(ends[i-1]))
	}
	return out
}

// median returns 0 for an empty list.
func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	s := append([]time.Duration(nil), d...)
	sort.Slice(s, func(i, j int) bool { return s[i] < s[j] })
	return s[len(s)/2]
}

// place is where in a step a moment lies.
type place struct {
	phase float64       // 0: the step has just begun, 1: it ends
	rest  time.Duration // until its end
}

// locate finds the step that holds a moment.
func locate(ends []time.Time, at time.Time) (place, bool) {
	i := sort.Search(len(ends), func(i int) bool { return ends[i].After(at) })
	if i == 0 || i == len(ends) {
		return place{}, false
	}
	step := ends[i].Sub(ends[i-1])
	return place{phase: float64(at.Sub(ends[i-1])) / float64(step), rest: ends[i].Sub(at)}, true
}

// longest returns the longest step that overlaps the time from from to to.
func longest(ends []time.Time, from, to time.Time) time.Duration {
	var out time.Duration
	for i := sort.Search(len(ends), func(i int) bool { return ends[i].After(from) }); i < len(ends); i++ {
		if i > 0 {
			out = max(out, ends[i].Sub(ends[i-1]))
		}
		if !ends[i].Before(to) {
			break
		}
	}
	return out
}
