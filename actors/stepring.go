package actors

// stepRing remembers when recent steps ran.
type stepRing struct {
	spans [recentSteps]struct{ from, to int64 }
	n     int
}

func (r *stepRing) add(from, to int64) {
	r.spans[r.n%recentSteps] = struct{ from, to int64 }{from, to}
	r.n++
}

// overlap returns how many remembered steps ended in (queued, bound] and the
// length of the longest one that overlaps [tokenized, bound], in nanoseconds.
func (r *stepRing) overlap(queued, tokenized, bound int64) (waited int, longest int64) {
	for i := range min(r.n, recentSteps) {
		s := r.spans[i]
		if s.to > queued && s.to <= bound {
			waited++
		}
		if s.to > tokenized && s.from < bound {
			longest = max(longest, s.to-s.from)
		}
	}
	return waited, longest
}
