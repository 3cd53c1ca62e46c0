// Package mailbox runs actors on protoactor-go with a mailbox of its own: one
// persistent goroutine per actor, a bounded ring without allocation, times and
// depths of every message, and no message that vanishes. It is the only package
// that imports protoactor, so a swap of the library stays possible.
//
// The reasons for not using the library's mailboxes, routers, futures, stash and
// receive timeouts are in docs/adr/0002-protoactor-mailbox.md.
package mailbox

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

// maxBatch is the number of messages handled before Drained is called although
// more are waiting. At 64 a burst of admissions costs one decision, while a
// flood can delay a decision by 64 handlers (some 100 µs) at most.
const maxBatch = 64

// laneSize is the number of places of the express lane. The Scheduler's lane
// holds at most two stepDone messages, one from rest and one of a step, of each of two epochs.
const laneSize = 8

// Handler is an actor's behaviour. Both methods run on the actor's goroutine.
type Handler interface {
	// Receive handles one message. A panic is an actor failure.
	Receive(m any)
	// Drained is called when no message is waiting, or after maxBatch of them.
	// Decisions that need the whole picture belong here. A panic is an actor
	// failure without a message.
	Drained()
}

// Failure says how an actor failed.
type Failure struct {
	// Actor is the actor's name, Kind its kind.
	Actor, Kind string
	// Reason is the recovered panic value.
	Reason any
	// Message was being handled; nil if Drained panicked.
	Message any
	// Stack is the goroutine's stack at the panic.
	Stack []byte
}

// Directive is what happens to a failed actor.
type Directive int

// A failed actor either gets a fresh Handler and keeps its queue, or ends and
// hands its queue to OnDrop.
const (
	Restart Directive = iota
	Stop
)

// Options describe an actor.
type Options struct {
	// Name is unique among live actors; Kind groups them in metrics.
	Name, Kind string
	// Ring is the number of messages that may wait.
	Ring int
	// Spin is how long the goroutine polls before it parks while Live reports
	// true; 0 parks at once.
	Spin time.Duration
	// Live reports whether work is under way; nil means never.
	Live func() bool
	// LockThread wires the goroutine to one operating system thread.
	LockThread bool
	// New makes the behaviour, at the start and at each restart.
	New func(self *Ref) Handler
	// OnFailure runs on the failed actor's goroutine before the directive is
	// carried out. Messages still queued are not lost. nil means Restart.
	OnFailure func(f Failure) Directive
	// OnDrop gets each message that will never be handled because the actor
	// ended. Any goroutine. nil discards.
	OnDrop func(m any)
}

// System holds the live actors. Make it with NewSystem.
type System struct {
	actors *actor.ActorSystem
	now    func() int64
	super  *supervisor

	mu    sync.Mutex
	boxes map[string]*Ref
}

// NewSystem returns an empty system whose times come from now, in nanoseconds.
func NewSystem(now func() int64) *System {
	s := &System{now: now, boxes: map[string]*Ref{}}
	s.actors = actor.NewActorSystem(actor.WithLoggerFactory(quietLogger))
	s.super = &supervisor{system: s}
	return s
}

// Ref is a live actor: its address and its mailbox. It stays valid, and refuses
// messages, after the actor has ended.
type Ref struct {
	system *System
	opts   Options
	pid    *actor.PID
	inv    actor.MessageInvoker
	ctx    actor.Context

	user, lane, sys *ring
	handler         Handler

	closed    atomic.Bool
	poisoned  atomic.Bool // stop when nothing is waiting
	suspended bool        // consumer only
	sleep     atomic.Bool
	tick      chan struct{}
	done      chan struct{}
	leftover  sync.Mutex

	stats stats
}

// Spawn starts an actor. It fails if the name is taken.
func (s *System) Spawn(o Options) (*Ref, error) {
	r := &Ref{
		system: s, opts: o,
		user: newRing(o.Ring), lane: newRing(laneSize), sys: newRing(64),
		tick: make(chan struct{}, 1), done: make(chan struct{}),
	}
	r.stats.startedAt = s.now()
	s.mu.Lock()
	if s.boxes[o.Name] != nil {
		s.mu.Unlock()
		return nil, fmt.Errorf("mailbox: spawn %s: name is taken", o.Name)
	}
	s.boxes[o.Name] = r
	s.mu.Unlock()
	props := actor.PropsFromProducer(func() actor.Actor {
		r.handler = o.New(r)
		return (*receiver)(r)
	}, actor.WithMailbox(func() actor.Mailbox { return (*box)(r) }), actor.WithGuardian(s.super))
	pid, err := s.actors.Root.SpawnNamed(props, o.Name)
	if err != nil {
		s.forget(r)
		return nil, fmt.Errorf("mailbox: spawn %s: %w", o.Name, err)
	}
	r.pid = pid
	return r, nil
}

// forget removes an ended actor from the table.
func (s *System) forget(r *Ref) {
	s.mu.Lock()
	if s.boxes[r.opts.Name] == r {
		delete(s.boxes, r.opts.Name)
	}
	s.mu.Unlock()
}

// byPID finds the live actor behind a protoactor address.
func (s *System) byPID(pid *actor.PID) *Ref {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.boxes[pid.Id]
}

// Tell posts m and reports false if the ring is full or the actor has ended; the
// caller still owns m then. Any goroutine. nil is a bug.
func (r *Ref) Tell(m any) bool { return r.post(r.user, m) }

// TellFirst posts m to the express lane, which is read before the ring.
func (r *Ref) TellFirst(m any) bool { return r.post(r.lane, m) }

func (r *Ref) post(q *ring, m any) bool {
	if m == nil {
		panic("BUG: mailbox: nil message for " + r.opts.Name)
	}
	if r.closed.Load() {
		r.stats.refused.Add(1)
		return false
	}
	if !q.push(m, r.system.now()) {
		r.stats.refused.Add(1)
		return false
	}
	r.stats.posted.Add(1)
	if r.closed.Load() {
		// The actor ended between the check and the push: the message may have
		// become visible after the loop's last look.
		r.dropLeftovers()
		return true
	}
	r.wake()
	return true
}

// Depth returns the number of messages waiting.
func (r *Ref) Depth() int { return r.user.depth() + r.lane.depth() }

// Stop ends the actor after the message in hand; messages still queued go to
// OnDrop. The channel is closed when its goroutine has ended.
func (r *Ref) Stop() <-chan struct{} {
	r.system.actors.Root.Stop(r.pid)
	return r.done
}

// StopWhenDrained ends the actor once no message is waiting. It does not use the
// library's poison pill, which needs a place in the ring and is lost without one.
func (r *Ref) StopWhenDrained() <-chan struct{} {
	r.poisoned.Store(true)
	r.wake()
	return r.done
}

// Done returns a channel that is closed when the actor's goroutine has ended.
func (r *Ref) Done() <-chan struct{} { return r.done }

// Name returns the actor's name.
func (r *Ref) Name() string { return r.opts.Name }

// receiver is the protoactor side of an actor: it forwards user messages to the
// Handler and ignores lifecycle messages.
type receiver Ref

// Receive is called by protoactor on the actor's goroutine.
func (a *receiver) Receive(c actor.Context) {
	m := c.Message()
	switch m.(type) {
	case *actor.Started, *actor.Stopping, *actor.Stopped, *actor.Restarting, *actor.Terminated:
		return
	}
	a.handler.Receive(m)
}

// box is the protoactor mailbox of an actor.
type box Ref

// RegisterHandlers is called once by protoactor, before Start.
func (b *box) RegisterHandlers(i actor.MessageInvoker, _ actor.Dispatcher) {
	b.inv, b.ctx = i, i.(actor.Context)
}

// Start starts the actor's goroutine.
func (b *box) Start() { go (*Ref)(b).loop() }

// PostUserMessage is protoactor's way in; the engine uses Tell. A message that
// finds no place goes to OnDrop.
func (b *box) PostUserMessage(m any) {
	if r := (*Ref)(b); m != nil && !r.post(r.user, m) {
		r.drop(m)
	}
}

// PostSystemMessage queues a lifecycle message. They are few; a full queue means
// a lost consumer.
func (b *box) PostSystemMessage(m any) {
	r := (*Ref)(b)
	for !r.sys.push(m, 0) {
		if r.closed.Load() {
			return
		}
		runtime.Gosched()
	}
	r.wake()
}

// UserMessageCount returns the number of messages waiting.
func (b *box) UserMessageCount() int { return (*Ref)(b).Depth() }

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
