package actors

import (
	"sync"
	"time"

	"waybill/actors/mailbox"
	"waybill/actors/sched"
)

// This file holds every message, grouped by receiver, each with its sender, its
// effect and its owner. The owner of a message may read it; only the sender of a
// pooled message takes it from its pool and only the receiver puts it back.

// ---- to Intake ----

// intakeWork asks Intake to render and tokenize a request.
// From: Submit, on the HTTP server's goroutine. Owner: Intake.
type intakeWork struct{ req *Request }

// intakeMore lets Intake take its next slice of work after looking at its ring.
// From: Intake itself. Owner: nobody, it is one value.
type intakeMore struct{}

// ---- to Scheduler ----

// admit brings one sequence to the waiting queue.
// From: Intake, and the Supervisor after a rebuild. Idempotent. Owner: Scheduler.
type admit struct{ seq *Sequence }

// abort ends a sequence whose end word somebody else has set.
// From: Abort on any goroutine, Detokenizer. Owner: Scheduler.
type abort struct{ seq *Sequence }

// stopped says that the Detokenizer found a stop string.
// From: Detokenizer. Owner: Scheduler.
type stopped struct{ seq *Sequence }

// stepDone says that a step's tokens are on the host, and what became of the plan
// that was on offer then. From: GPU-step, on the express lane. Pooled; owner:
// Scheduler, which puts it back.
type stepDone struct {
	epoch uint64
	step  sched.StepID // 0: nothing ended, only news of a launch from rest
	// results has one entry per row of the step's plan; extras holds logprobs for
	// the rows that asked, or nil.
	results []sched.Result
	extras  []*tokenExtras
	// launchedAt and endedAt bound the step on the host's clock.
	launchedAt, endedAt int64
	// bound is the version of the plan that runs as boundStep, or 0; void that of
	// a plan which was taken but not run, or 0.
	bound, void uint64
	boundStep   sched.StepID
	bindAt      int64
	// gapGPU and gapWriters are the time between the step before and this one
	// that GPU-step itself took, and that it left to the writers, in nanoseconds.
	gapGPU, gapWriters int64
	// deviceIdle is that time by the device's own clock, hostIdle the host's part of it;
	// negative: unknown.
	deviceIdle, hostIdle time.Duration
	// expected is how long the step was likely to take, in nanoseconds.
	expected int64
	// rows, prefillTokens and decodeRows count the step's work; changed says that
	// its sequences are not those of the step before.
	rows, prefillTokens, decodeRows int
	changed                         bool
	// handoff counts down the rows of the step that still have bytes to write.
	handoff turn
}

var stepDones = sync.Pool{New: func() any { return new(stepDone) }}

// newStepDone takes a stepDone from the pool. Sender only.
func newStepDone() *stepDone { return stepDones.Get().(*stepDone) }

// put gives a stepDone back. Receiver only.
func (m *stepDone) put() {
	clear(m.extras)
	*m = stepDone{results: m.results[:0], extras: m.extras[:0]}
	stepDones.Put(m)
}

// ---- to GPU-step ----

// wake says that the plan slot was filled while GPU-step was parked.
// From: Scheduler. Owner: nobody, it is one value.
type wake struct{}

// ---- to Detokenizer ----

// tokenBatch brings the tokens of one step for the sequences of one shard.
// From: Scheduler. Pooled; owner: Detokenizer, which puts it back.
type tokenBatch struct {
	at      int64 // when the step's tokens were on the host
	handoff turn
	tokens  []tokenFor
}

// tokenFor is one sequence's share of a step.
type tokenFor struct {
	seq *Sequence
	// has says that token was sampled; without it only prompt logprobs or the end
	// of a prompt-only sequence are told.
	has    bool
	token  int32
	finish sched.Finish
	extras *tokenExtras
}

// tokenExtras are logprobs that a request asked for.
type tokenExtras struct {
	// sampled describes the sampled token.
	sampled *TokenLogprobs
	// promptStart is the position of the first of prompt.
	promptStart int
	prompt      []TokenLogprobs
}

var tokenBatches = sync.Pool{New: func() any { return new(tokenBatch) }}

func newTokenBatch() *tokenBatch { return tokenBatches.Get().(*tokenBatch) }

func (m *tokenBatch) put() {
	clear(m.tokens)
	*m = tokenBatch{tokens: m.tokens[:0]}
	tokenBatches.Put(m)
}

// endSeq says that a sequence's end word was set to abort or error by somebody
// other than the Detokenizer. From: whoever won. Owner: Detokenizer.
type endSeq struct{ seq *Sequence }

// ---- to Supervisor ----

// pipelineFailed tells the Supervisor that Scheduler or GPU-step failed.
// From: the failed actor's goroutine. Owner: Supervisor.
type pipelineFailed struct {
	pipe    *pipeline
	failure mailbox.Failure
	number  int64 // in the console's timeline
}

// ---- to Inspector ----

// subscribe brings a viewer, unsubscribe takes it away.
// From: Watch and Watcher.Close, on any goroutine. Owner: Inspector.
type (
	subscribe   struct{ w *Watcher }
	unsubscribe struct{ w *Watcher }
)

// sampleNow says that the next sample is due.
// From: the Inspector's own timer. Owner: nobody, it is one value.
type sampleNow struct{}

// ---- to Ledger ----

// The Ledger receives *Sequence values whose waybill is complete on both sides.
// From: whoever finished the second side. Owner: Ledger.
