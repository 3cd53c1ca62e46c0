package mailbox

import (
	"runtime"

	"github.com/asynkron/protoactor-go/actor"
)

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
