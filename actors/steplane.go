package actors

import (
	"sync"
	"sync/atomic"
	"time"

	"waybill/actors/sched"
	"waybill/actors/waybill"
)

// stepLane remembers the last steps while somebody watches. The Scheduler adds,
// the Inspector takes.
type stepLane struct {
	on   atomic.Bool
	mu   sync.Mutex // held for a copy of one step, or of all
	list []StepView
	plan atomic.Pointer[planNote] // the last one on offer
}

// planNote is what is remembered of a plan: the plan itself is reused.
type planNote struct {
	after         sched.StepID
	rows, prefill int
	expected      time.Duration
}

// offered notes a plan that was published.
func (l *stepLane) offered(p *sched.Plan) {
	if p != nil && l.on.Load() {
		l.plan.Store(&planNote{p.After, len(p.Rows), p.PrefillTokens, p.Expected})
	}
}

// add notes a finished step.
func (l *stepLane) add(epoch uint64, m *stepDone, gapScheduler int64) {
	if !l.on.Load() {
		return
	}
	v := StepView{
		Step: uint64(m.step), Epoch: epoch, At: unixMs(m.launchedAt), Ms: float64(m.endedAt-m.launchedAt) / 1e6,
		Rows: m.rows, Prefill: m.prefillTokens, Decode: m.decodeRows, Changed: m.changed,
		IdleUs: -1, GapUs: float64(m.gapGPU+m.gapWriters+gapScheduler) / 1e3, Predicted: float64(m.expected) / 1e6,
	}
	if m.deviceIdle >= 0 {
		v.IdleUs = float64(m.deviceIdle.Nanoseconds()) / 1e3
	}
	switch {
	case v.GapUs == 0:
	case gapScheduler > m.gapGPU+m.gapWriters:
		v.GapActor = "scheduler"
	case m.gapWriters > m.gapGPU:
		v.GapActor = "sse-writer"
	default:
		v.GapActor = "gpu-step"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) == laneSteps {
		copy(l.list, l.list[1:])
		l.list = l.list[:laneSteps-1]
	}
	l.list = append(l.list, v)
}

// take returns the steps since the last call.
func (l *stepLane) take() []StepView {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.list
	if out == nil {
		out = []StepView{} // an empty list, not null
	}
	l.list = make([]StepView, 0, laneSteps)
	return out
}

// unixMs converts a stamp to Unix milliseconds; 0 stays 0.
func unixMs(stamp int64) float64 {
	if stamp == 0 {
		return 0
	}
	return float64(waybill.Wall(stamp).UnixMicro()) / 1e3
}
