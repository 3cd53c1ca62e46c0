package actors

import (
	"sync/atomic"
	"time"

	"waybill/actors/mailbox"
	"waybill/actors/sched"
	"waybill/actors/waybill"
)

// planSlot is a mailbox of one plan: the Scheduler swaps plans in, GPU-step swaps
// them out at the last moment before a launch.
type planSlot = atomic.Pointer[sched.Plan]

// Executor runs steps on a device, or on several. It belongs to GPU-step's
// goroutine.
type Executor interface {
	// Launch starts the rows of plan that keep marks. results are those of the
	// step before.
	Launch(plan *sched.Plan, keep []bool, results []sched.Result)
	// Wait computes or polls until the step's tokens are on the host and writes
	// one result per row, and extras for the rows that asked for logprobs.
	Wait(results []sched.Result, extras []*tokenExtras) error
	// Close gives the KV memory back.
	Close() error
}

// gpuStepActor runs steps one after another as long as the slot holds a plan
// that follows the last one. It owns the device.
type gpuStepActor struct {
	engine *Engine
	pipe   *pipeline
	ref    *mailbox.Ref
	exec   Executor

	step     sched.StepID // the last step that was launched
	results  []sched.Result
	keep     []bool
	plan     *sched.Plan // the launched plan, nil at rest
	launched int64
	handoffs [4]*handoff
	patience *time.Timer
	cpu      bool
}

func newGPUStep(e *Engine, p *pipeline, exec Executor, ref *mailbox.Ref) *gpuStepActor {
	a := &gpuStepActor{engine: e, pipe: p, ref: ref, exec: exec, patience: time.NewTimer(time.Hour), cpu: e.cfg.OnCPU}
	a.patience.Stop()
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
func (a *gpuStepActor) bind() (bound, void uint64, at int64) {
	a.engine.fault("bind")
	plan := a.pipe.slot.Swap(nil)
	at = waybill.Now()
	if plan == nil {
		return 0, 0, at
	}
	if plan.Epoch != a.pipe.epoch || plan.After != a.step {
		return 0, plan.Version, at
	}
	keep, kept := plan.Bind(a.results, a.keep)
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
	m.bound, m.void, m.bindAt = a.bind()
	if m.bound == 0 && m.void == 0 {
		m.put()
		return false // a wake too many
	}
	if m.bound != 0 {
		a.step++
		m.boundStep = a.step
		a.launch(waybill.Now())
	}
	running := m.bound != 0
	a.pipe.sched.TellFirst(m)
	return running
}

// launch starts the bound plan.
func (a *gpuStepActor) launch(at int64) {
	a.launched = at
	a.engine.stepStarted(at)
	a.engine.fault("launch")
	a.exec.Launch(a.plan, a.keep, a.results)
}

// run waits for the step in flight, binds the next and posts the news. On a GPU
// the next step is launched before the news is posted; a CPU computes it after
// the writers had their turn.
func (a *gpuStepActor) run() {
	m := newStepDone()
	m.epoch, m.step, m.launchedAt = a.pipe.epoch, a.step, a.launched
	rows := len(a.plan.Rows)
	m.results = append(m.results[:0], make([]sched.Result, rows)...)
	m.extras = append(m.extras[:0], make([]*tokenExtras, rows)...)
	a.engine.fault("step")
	if err := a.exec.Wait(m.results, m.extras); err != nil {
		panic(deviceError{err})
	}
	m.endedAt = waybill.Now()
	a.engine.stepFinished()
	sampled := 0
	for i := range a.plan.Rows {
		if !m.results[i].Dropped && a.plan.Rows[i].Sample {
			sampled++
		}
	}
	h := a.handoffs[int(a.step)%len(a.handoffs)]
	h.reset(sampled)
	m.handoff = h
	a.results = append(a.results[:0], m.results...)
	a.plan = nil
	m.bound, m.void, m.bindAt = a.bind()
	if m.bound != 0 {
		a.step++
		m.boundStep = a.step
		if !a.cpu {
			a.launch(waybill.Now())
		}
	}
	bound := m.bound != 0
	a.pipe.sched.TellFirst(m)
	if bound && a.cpu {
		h.wait(a.patience)
		a.launch(waybill.Now())
	}
}

// deviceError is a sticky error of the device: the process ends.
type deviceError struct{ err error }

func (e deviceError) Error() string { return e.err.Error() }
