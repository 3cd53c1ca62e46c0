package cpu

import "time"

// stalls watches how long the owner waits for workers beyond spinTime. Where other
// programs want the cores, a worker loses its core for milliseconds with a chunk
// in its hands, and two threads are slower than one. Then some steps go without
// workers: one, and twice as many each time it happens again, up to maxRest.
type stalls struct {
	began  time.Time
	waited time.Duration
	// rest is the length of the last rest, resting the steps left of it.
	rest, resting int
}

// maxRest is the longest rest in steps: a try that stalls costs about a step, so
// at most one part in 64 is lost to trying, and a core that comes free is taken
// within 64 steps.
const maxRest = 64

// begin starts a step and reports whether workers are to help.
func (s *stalls) begin(now time.Time) bool {
	if s.resting > 0 {
		s.resting--
		return false
	}
	s.began, s.waited = now, 0
	return true
}

// end judges a step that workers helped with.
func (s *stalls) end(now time.Time) {
	switch {
	case 4*s.waited < now.Sub(s.began):
		s.rest /= 2
	default:
		s.rest = min(max(1, 2*s.rest), maxRest)
		s.resting = s.rest
	}
}
