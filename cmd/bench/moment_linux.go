package bench

import (
	"context"
	"syscall"
	"time"
)

// timerSlack is more than a timer of the Go runtime can be late: it polls for network
// events with a timeout in whole milliseconds, and wakes early when one arrives. Left
// to it, requests would come in step with the answers that the client reads, and no
// phase of a server's step would be as likely as the next.
const timerSlack = 2 * time.Millisecond

// until waits for a moment, or for the context's end.
func until(ctx context.Context, at time.Time) {
	if wait := time.Until(at) - timerSlack; wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
	// The kernel's own timer is exact to some 50 µs and takes no CPU.
	for wait := time.Until(at); wait > 0; wait = time.Until(at) {
		ts := syscall.NsecToTimespec(int64(wait))
		// A signal ends the sleep early; the loop goes on.
		_ = syscall.Nanosleep(&ts, nil)
	}
}
