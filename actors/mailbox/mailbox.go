// Package mailbox runs actors on protoactor-go with a mailbox of its own: one
// persistent goroutine per actor, a bounded ring without allocation, times and
// depths of every message, and no message that vanishes. It is the only package
// that imports protoactor, so a swap of the library stays possible.
//
// The reasons for not using the library's mailboxes, routers, futures, stash and
// receive timeouts are in docs/adr/0002-protoactor-mailbox.md.
package mailbox

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
)

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
