package cpu

import (
	"runtime"
	"time"
)

// spinTime is how long a thread that waits spins before it offers its core to
// others. Ops of a decode step are 2 to 200 µs long, so within it most waits are
// over; a thread that was descheduled holds the others up for longer, and
// then their spinning would keep it off the core.
const spinTime = 20 * time.Microsecond

// waiter paces one wait.
type waiter struct {
	rounds int
	since  time.Time
}

// pauseRounds is how many CPU pause instructions one look at the awaited word
// costs: some 0.2 µs on current cores, short against a chunk.
const pauseRounds = 4

// pause waits a little: by spinning at first, by giving the core away later.
func (w *waiter) pause() {
	w.rounds++
	switch {
	case w.rounds == 1:
		w.since = time.Now()
		spin(pauseRounds)
	case w.rounds%8 != 0 || time.Since(w.since) < spinTime:
		spin(pauseRounds)
	case w.rounds%64 != 0:
		yieldCore()
	default:
		// Now and then other goroutines of this P, too.
		runtime.Gosched()
	}
}
