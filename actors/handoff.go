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
	state atomic.Uint64 // turn<<32 | rows pending
	zero  chan struct{}
}

// turn is one step's use of a handoff. A writer that was held up for longer than
// handoffs are kept counts down a turn that is over: that changes nothing. The zero
// turn is a row without a countdown.
type turn struct {
	h     *handoff
	n     uint32
	total int // rows at the start
}

func newHandoff() *handoff { return &handoff{zero: make(chan struct{}, 1)} }

// reset starts a countdown from n. The last step's stragglers may still hold an
// old turn, so GPU-step keeps a few handoffs and reuses the oldest.
func (h *handoff) reset(n int) turn {
	next := uint32(h.state.Load()>>32) + 1
	h.state.Store(uint64(next)<<32 | uint64(uint32(n)))
	select {
	case <-h.zero:
	default:
	}
	return turn{h, next, n}
}

// pending returns how many rows of the turn under way are left.
func (h *handoff) pending() int { return int(int32(uint32(h.state.Load()))) }

// done counts rows down. Any goroutine.
func (t turn) done(rows int) {
	if t.h == nil || rows == 0 {
		return
	}
	for {
		v := t.h.state.Load()
		if uint32(v>>32) != t.n {
			return
		}
		left := uint32(v) - uint32(rows)
		if !t.h.state.CompareAndSwap(v, v&^0xffffffff|uint64(left)) {
			continue
		}
		if left == 0 {
			select {
			case t.h.zero <- struct{}{}:
			default:
			}
		}
		return
	}
}

// wait parks until the count is zero or patience is over. timer is reused.
func (t turn) wait(timer *time.Timer) {
	if t.h.pending() <= 0 {
		return
	}
	timer.Reset(handoffPatience + time.Duration(t.total)*handoffPerRow)
	defer timer.Stop()
	for t.h.pending() > 0 {
		select {
		case <-t.h.zero: // maybe the turn before's, a moment late
		case <-timer.C:
			return
		}
	}
}
