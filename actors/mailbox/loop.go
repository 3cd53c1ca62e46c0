package mailbox

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/pprof"

	"github.com/asynkron/protoactor-go/actor"
)

// maxBatch is the number of messages handled before Drained is called although
// more are waiting. At 64 a burst of admissions costs one decision, while a
// flood can delay a decision by 64 handlers (some 100 µs) at most.
const maxBatch = 64

// wake unparks the actor's goroutine if it is parked.
func (r *Ref) wake() {
	if r.sleep.Load() && r.sleep.CompareAndSwap(true, false) {
		r.tick <- struct{}{}
	}
}

// ready reports whether the loop has something to do. Consumer only.
func (r *Ref) ready() bool {
	if r.sys.ready() {
		return true
	}
	return !r.suspended && (r.poisoned.Load() || r.lane.ready() || r.user.ready())
}

// loop is the actor's goroutine.
func (r *Ref) loop() {
	if r.opts.LockThread {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("actor", r.opts.Name)))
	for {
		if r.run() {
			break
		}
		if r.opts.Spin > 0 && r.opts.Live != nil && r.opts.Live() && r.spin() {
			continue
		}
		r.sleep.Store(true)
		if r.ready() {
			if !r.sleep.CompareAndSwap(true, false) {
				<-r.tick
			}
			continue
		}
		<-r.tick
	}
	r.closed.Store(true)
	r.system.forget(r)
	r.dropLeftovers()
	close(r.done)
}

// spin polls for work for at most Options.Spin and reports whether it came.
func (r *Ref) spin() bool {
	until := r.system.now() + int64(r.opts.Spin)
	for r.system.now() < until {
		for range 32 {
			if r.ready() {
				return true
			}
		}
		runtime.Gosched()
	}
	return false
}

// run handles all that is waiting and reports whether the actor has ended.
func (r *Ref) run() (ended bool) {
	var m any
	defer func() {
		if reason := recover(); reason != nil {
			r.fail(reason, m)
		}
	}()
	undecided := 0
	for {
		if sm, _, ok := r.sys.pop(); ok {
			if r.handleSystem(sm) {
				return true
			}
			continue
		}
		if r.suspended {
			return false
		}
		var at int64
		var ok bool
		if m, at, ok = r.lane.pop(); !ok {
			m, at, ok = r.user.pop()
		}
		if ok {
			r.handle(m, at)
			m = nil
			undecided++
		}
		if undecided > 0 && (!ok || undecided >= maxBatch) {
			undecided = 0
			r.decide()
			continue
		}
		if !ok {
			if !r.poisoned.CompareAndSwap(true, false) {
				return false
			}
			r.system.actors.Root.Stop(r.ctx.Self())
		}
	}
}

// handle runs the handler for one message and keeps its times.
func (r *Ref) handle(m any, at int64) {
	t := r.system.now()
	r.stats.wait.record(t - at)
	r.stats.begin(m, t)
	r.inv.InvokeUserMessage(m)
	r.stats.end(t, r.system.now())
}

// decide runs Drained and keeps its time.
func (r *Ref) decide() {
	t := r.system.now()
	r.stats.begin(drainedMark, t)
	r.handler.Drained()
	r.stats.endDrained(t, r.system.now())
}

// handleSystem handles a lifecycle message and reports whether the actor has ended.
func (r *Ref) handleSystem(m any) (ended bool) {
	switch m.(type) {
	case *actor.SuspendMailbox:
		r.suspended = true
		return false
	case *actor.ResumeMailbox:
		r.suspended = false
		return false
	}
	r.inv.InvokeSystemMessage(m)
	switch m.(type) {
	case *actor.Stop, *actor.Terminated, *actor.Restart:
		_, alive := r.system.actors.ProcessRegistry.GetLocal(r.ctx.Self().Id)
		return !alive
	}
	return false
}

// fail reports a panic to the supervisor.
func (r *Ref) fail(reason, m any) {
	r.stats.panicked()
	r.stats.lastStack = debug.Stack()
	r.inv.EscalateFailure(reason, m)
}

// dropLeftovers hands all queued messages to OnDrop. Any goroutine, only after
// closed was set; one at a time.
func (r *Ref) dropLeftovers() {
	r.leftover.Lock()
	defer r.leftover.Unlock()
	for _, q := range []*ring{r.lane, r.user} {
		for m, _, ok := q.pop(); ok; m, _, ok = q.pop() {
			r.drop(m)
		}
	}
}

func (r *Ref) drop(m any) {
	r.stats.dropped.Add(1)
	if r.opts.OnDrop != nil {
		r.opts.OnDrop(m)
	}
}
