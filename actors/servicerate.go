package actors

import (
	"math"
	"sync"
	"time"
)

// serviceRate measures how fast places come back and tells refused clients when
// to try again. Each refused client gets a turn of its own behind the turns given
// out before, so those who come back when they were told to arrive as fast as
// places come back, and not all at once. It belongs to no actor: handlers and
// whoever gives a place back call it.
type serviceRate struct {
	mu sync.Mutex
	// back holds the times of the last places that came back, [n % len].
	back [rateWindow]int64
	n    int
	// busySince is when the first place of the present run of work was taken: the
	// time before it says nothing about how fast work is done.
	busySince int64
	// turn is when the last refused client was told to come.
	turn int64
	// perPlace is the last estimate, for a busy time that has not given one yet.
	perPlace time.Duration
}

// taken notes that places were taken when used were in use before.
func (r *serviceRate) taken(used, now int64) {
	if used > 0 {
		return
	}
	r.mu.Lock()
	if r.n > 0 {
		r.measure(r.back[(r.n-1)%rateWindow]) // what was learned until the rest began
	}
	r.busySince, r.turn = now, 0
	r.mu.Unlock()
}

// gaveBack notes that a place came back.
func (r *serviceRate) gaveBack(now int64) {
	r.mu.Lock()
	r.back[r.n%rateWindow] = now
	r.n++
	r.mu.Unlock()
}

// measure returns the mean time between two places that come back.
func (r *serviceRate) measure(now int64) time.Duration {
	since, count := r.busySince, int64(0)
	for i := r.n - 1; i >= max(0, r.n-rateWindow); i-- {
		if at := r.back[i%rateWindow]; at < r.busySince {
			break
		}
		count++
	}
	if count == rateWindow {
		since = r.back[r.n%rateWindow] // the oldest: its own interval is not known
		count--
	}
	if count > 0 {
		// Up to now and not to the last one: a server that stands still gets slower.
		r.perPlace = time.Duration((now - since) / count)
	}
	return r.perPlace
}

// refused returns when a client that wants n places should come again.
func (r *serviceRate) refused(n, now int64) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	per := r.measure(now)
	wait := maxRetryAfter
	if per < maxRetryAfter/time.Duration(n) {
		r.turn = max(r.turn, now) + n*int64(per)
		wait = time.Duration(r.turn - now)
	}
	if wait >= maxRetryAfter {
		// Whoever is told the longest time may come at any time after it.
		r.turn, wait = now+int64(maxRetryAfter), maxRetryAfter
	}
	return max(wait, minRetryAfter)
}

// RetrySeconds returns a Retry-After header's value: whole seconds, not less than
// the wait.
func RetrySeconds(wait time.Duration) int { return int(math.Ceil(wait.Seconds())) }
