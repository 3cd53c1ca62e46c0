package actors

import (
	"errors"
	"time"

	"waybill/actors/sched"
	"waybill/actors/waybill"
	"waybill/kernels"
)

// Executor runs steps on a device, or on several. It belongs to GPU-step's
// goroutine.
type Executor interface {
	// Launch starts the rows of plan that keep marks. results are those of the
	// step before.
	Launch(plan *sched.Plan, keep []bool, results []sched.Result)
	// Prepare gets ready to launch plan after the step that runs, if it can. It keeps
	// nothing of plan, which is perhaps never launched. soon says that the step ends
	// soon: the device may be given what it can hold back until it is told to go on.
	Prepare(plan *sched.Plan, soon bool)
	// Rest says that no step follows the one that ended: the device is to hold nothing
	// back.
	Rest()
	// Wait computes or polls until the step's tokens are on the host and writes
	// one result per row, and extras for the rows that asked for logprobs. A device
	// that polls calls meanwhile again and again.
	Wait(results []sched.Result, extras []*tokenExtras, meanwhile kernels.Meanwhile) error
	// Idle returns, after Wait, how long the device rested between the last two steps by
	// its own clock, and what the host took of that from seeing the tokens to the return of
	// the launch, or to letting go on what the device held back; negative: unknown.
	Idle() (device, host time.Duration)
	// Close gives the KV memory back.
	Close() error
}

// gpuStepActor runs steps one after another as long as the slot holds a plan
// that follows the last one. It owns the device.
type gpuStepActor struct {
	engine *Engine
	pipe   *pipeline
	exec   Executor

	step     sched.StepID // the last step that was launched
	results  []sched.Result
	keep     []bool
	plan     *sched.Plan // the launched plan, nil at rest
	launched int64
	// gapGPU and gapWriters precede the launched step, in nanoseconds.
	gapGPU, gapWriters int64
	fromRest           bool          // the launched step follows no other
	members            []sched.SeqID // of the last step that ran
	handoffs           [4]*handoff
	patience           *time.Timer
	cpu                bool

	// While a step runs: the plan on offer that was seen last, the look at it, and results
	// and rows to try Bind with.
	looked    *sched.Plan
	looking   kernels.Meanwhile
	triedWith []sched.Result
	tried     []bool
}

func newGPUStep(e *Engine, p *pipeline, exec Executor) *gpuStepActor {
	a := &gpuStepActor{engine: e, pipe: p, exec: exec, patience: time.NewTimer(time.Hour), cpu: e.cfg.OnCPU}
	a.patience.Stop()
	a.looking = a.look
	for i := range a.handoffs {
		a.handoffs[i] = newHandoff()
	}
	p.handoffs = a.handoffs[:]
	return a
}

// Receive is woken when the slot was filled while it was parked.
func (a *gpuStepActor) Receive(any) {
	if !a.bindFromRest() {
		return
	}
	for a.plan != nil {
		a.run()
	}
}

// Drained does nothing.
func (a *gpuStepActor) Drained() {}

// bind takes what is on offer. It reports the version of the plan that runs now,
// or of the one that was taken for nothing.
func (a *gpuStepActor) bind(results []sched.Result) (bound, void uint64, at int64) {
	a.engine.fault("bind")
	plan := a.pipe.slot.Swap(nil)
	at = waybill.Now()
	if plan == nil {
		return 0, 0, at
	}
	if plan.Epoch != a.pipe.epoch || plan.After != a.step {
		return 0, plan.Version, at
	}
	keep, kept := plan.Bind(results, a.keep)
	a.keep = keep
	if kept == 0 {
		return 0, plan.Version, at
	}
	a.plan = plan
	return plan.Version, 0, at
}

// bindFromRest launches the plan that it was woken for and tells the Scheduler.
func (a *gpuStepActor) bindFromRest() bool {
	m := newStepDone()
	m.epoch = a.pipe.epoch
	m.bound, m.void, m.bindAt = a.bind(a.results)
	if m.bound == 0 && m.void == 0 {
		m.put()
		return false // a wake too many
	}
	if m.bound != 0 {
		a.step++
		m.boundStep = a.step
		a.gapGPU, a.gapWriters, a.fromRest = 0, 0, true
		a.launch(waybill.Now(), a.results)
	}
	running := m.bound != 0
	a.pipe.sched.TellFirst(m)
	return running
}

// launch starts the bound plan.
func (a *gpuStepActor) launch(at int64, results []sched.Result) {
	a.launched, a.looked = at, nil
	a.engine.stepStarted(at)
	a.engine.fault("launch")
	a.exec.Launch(a.plan, a.keep, results)
}

// look prepares the plan on offer while a step runs, so that little is left to do at its
// end. The plan stays on offer: a better one that comes is prepared in its place. If soon,
// it is prepared once more and bound for a try, since both have left the caches by then.
func (a *gpuStepActor) look(soon bool) {
	plan := a.pipe.slot.Load()
	if plan == nil || plan == a.looked && !soon {
		return
	}
	a.looked = plan
	a.pipe.read.Store(plan)
	defer a.pipe.read.Store(nil)
	if a.pipe.slot.Load() == plan && plan.Epoch == a.pipe.epoch && plan.After == a.step {
		a.exec.Prepare(plan, soon)
		if soon {
			a.triedWith = append(a.triedWith[:0], make([]sched.Result, len(a.plan.Rows))...)
			a.tried, _ = plan.Bind(a.triedWith, a.tried)
		}
	}
}

// count fills in the work of the step of plan that ended and returns its sampled rows.
func (a *gpuStepActor) count(m *stepDone, plan *sched.Plan) (sampled int) {
	before := len(a.members)
	for i := range plan.Rows {
		r := &plan.Rows[i]
		if m.results[i].Dropped {
			continue
		}
		if m.rows >= before || a.members[m.rows] != r.Seq {
			m.changed = true
		}
		m.rows++
		if r.Sample {
			sampled++
		}
		if r.Start+r.Len <= r.PromptLen {
			m.prefillTokens += r.Len
		} else {
			m.decodeRows++
		}
	}
	m.changed = m.changed || m.rows != before
	a.members = a.members[:0]
	for i := range plan.Rows {
		if !m.results[i].Dropped {
			a.members = append(a.members, plan.Rows[i].Seq)
		}
	}
	return sampled
}

// launchAfter launches behind a step that ended at ended with results; the writers had
// wait nanoseconds of the gap.
func (a *gpuStepActor) launchAfter(results []sched.Result, ended, wait int64) {
	now := waybill.Now()
	a.gapGPU, a.gapWriters, a.fromRest = now-ended-wait, wait, false
	a.launch(now, results)
}

// run waits for the step in flight, binds the next and posts the news. On a GPU
// the next step is launched before the news is posted, and before anything else that
// can wait; a CPU computes it after the writers had their turn.
func (a *gpuStepActor) run() {
	m := newStepDone()
	m.epoch, m.step, m.launchedAt = a.pipe.epoch, a.step, a.launched
	m.gapGPU, m.gapWriters = a.gapGPU, a.gapWriters
	m.expected = int64(a.plan.Expected)
	rows := len(a.plan.Rows)
	m.results = append(m.results[:0], make([]sched.Result, rows)...)
	m.extras = append(m.extras[:0], make([]*tokenExtras, rows)...)
	a.engine.fault("step")
	if err := a.exec.Wait(m.results, m.extras, a.looking); errors.Is(err, kernels.ErrOutOfMemory) {
		a.lost(m)
	} else if err != nil {
		panic(deviceError{err})
	}
	m.endedAt = waybill.Now()
	m.deviceIdle, m.hostIdle = -1, -1
	if !a.fromRest {
		m.deviceIdle, m.hostIdle = a.exec.Idle()
	}
	a.engine.stepFinished()
	ran := a.plan
	a.plan = nil
	m.bound, m.void, m.bindAt = a.bind(m.results)
	if m.bound != 0 {
		a.step++
		m.boundStep = a.step
		if !a.cpu {
			a.launchAfter(m.results, m.endedAt, 0)
		}
	}
	writers := a.handoffs[int(m.step)%len(a.handoffs)].reset(a.count(m, ran))
	m.handoff = writers
	a.results = append(a.results[:0], m.results...)
	bound, ended := m.bound != 0, m.endedAt
	a.pipe.sched.TellFirst(m) // m is the Scheduler's now
	if !bound {
		a.exec.Rest()
	}
	if bound && a.cpu {
		posted := waybill.Now()
		writers.wait(a.patience)
		a.launchAfter(a.results, ended, waybill.Now()-posted)
	}
}

// lost fails the rows of a step for which the device had no memory.
func (a *gpuStepActor) lost(m *stepDone) {
	for i := range m.results {
		m.results[i] = sched.Result{Dropped: !a.keep[i], Failed: a.keep[i], NoMemory: a.keep[i]}
		m.extras[i] = nil
	}
}

// deviceError is a sticky error of the device: the process ends.
type deviceError struct{ err error }

func (e deviceError) Error() string { return e.err.Error() }
