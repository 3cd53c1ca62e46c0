package cpu

import "time"

// stalls watches how long the owner waits for workers beyond spinTime. Where other
// programs want the cores, a worker loses its core for milliseconds with a chunk
// in its hands, and two threads are slower than one. Then the owner works alone
// for a while, and twice as long each time it happens again, up to maxRest.
//
// It judges windows of time and not steps: a client that wants a core for two
// milliseconds stalls a step of 8, and the next step may be one of 50, which took
// 85 when it was spent alone with the other core idle.
type stalls struct {
	since  time.Time     // when the window began or went on in this step
	worked time.Duration // the window's part in earlier steps
	waited time.Duration // for workers, in the window
	// rest is the length of the last rest, until its end.
	rest  time.Duration
	until time.Time
}

const (
	// stallWindow is how much time with workers is judged at once: a few of the
	// slices of some 3 ms that a scheduler gives to programs which share a core.
	stallWindow = 8 * time.Millisecond
	// maxRest is the longest rest: a try that stalls costs a window, so at most one
	// part in 64 is lost to trying, and a core that comes free is taken within it.
	maxRest = 64 * stallWindow
)

// begin opens a window, or goes on with the one of the step before, and reports
// whether workers are to help now.
func (s *stalls) begin(now time.Time) bool {
	s.since = now
	return !now.Before(s.until)
}

// end closes a step that workers helped with at its end.
func (s *stalls) end(now time.Time) {
	s.worked += now.Sub(s.since)
}

// judge is asked while workers help. It reports whether they may go on.
func (s *stalls) judge(now time.Time) bool {
	length := s.worked + now.Sub(s.since)
	if length < stallWindow {
		return true
	}
	stalled := 4*s.waited >= length
	s.since, s.worked, s.waited = now, 0, 0
	if !stalled {
		if s.rest /= 2; s.rest < stallWindow {
			s.rest = 0
		}
		return true
	}
	first := s.rest == 0 // may be chance
	s.rest = min(max(stallWindow, 2*s.rest), maxRest)
	if first {
		return true
	}
	s.until = now.Add(s.rest)
	return false
}
