package actors

import (
	"sync/atomic"
	"time"
)

// handoff counts down the sampled rows of one step whose bytes are not on their
// way yet. On a CPU every core computes during a step; GPU-step therefore parks
// between steps until the count is zero, so that writers find a free core, but
// no longer than handoffPatience and handoffPerRow allow.
type handoff struct {
	total   int // rows at the start
	pending atomic.Int32
	zero    chan struct{}
}

func newHandoff() *handoff { return &handoff{zero: make(chan struct{}, 1)} }

// reset starts a countdown from n. The last step's stragglers may still hold an
// old handoff, so GPU-step keeps a few and reuses the oldest.
func (h *handoff) reset(n int) {
	select {
	case <-h.zero:
	default:
	}
	h.total = n
	h.pending.Store(int32(n))
}

// done counts one row down. Any goroutine; nil is allowed.
func (h *handoff) done(rows int) {
	if h != nil && h.pending.Add(-int32(rows)) == 0 {
		select {
		case h.zero <- struct{}{}:
		default:
		}
	}
}

// wait parks until the count is zero or patience is over. t is reused.
func (h *handoff) wait(t *time.Timer) {
	if h.pending.Load() <= 0 {
		return
	}
	t.Reset(handoffPatience + time.Duration(h.total)*handoffPerRow)
	select {
	case <-h.zero:
		t.Stop()
	case <-t.C:
	}
}
