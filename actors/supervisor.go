package actors

import (
	"errors"
	"fmt"
	"time"

	"waybill/actors/waybill"
)

// supervisorActor rebuilds the pipeline after a failure. It is the root: if it
// cannot, the process ends.
type supervisorActor struct {
	engine   *Engine
	failures []int64 // when
}

// Receive handles one failure.
func (a *supervisorActor) Receive(m any) {
	f, ok := m.(pipelineFailed)
	if !ok || f.pipe != a.engine.pipe.Load() {
		return // a second failure of a pipeline that is replaced already
	}
	var dev deviceError
	if err, ok := f.failure.Reason.(error); ok && errors.As(err, &dev) {
		a.engine.die(fmt.Errorf("device: %w", dev.err))
		return
	}
	if a.engine.tooMany(&a.failures) {
		a.engine.die(fmt.Errorf("%d failures of the pipeline within %v, the last in %s: %v", maxFailures, failureWindow, f.failure.Actor, f.failure.Reason))
		return
	}
	if err := a.engine.rebuild(f.pipe, f.number); err != nil {
		a.engine.die(err)
	}
}

// Drained does nothing.
func (a *supervisorActor) Drained() {}

// rebuild replaces a failed pipeline: sequences that have produced a token get an
// error, the others are admitted again.
func (e *Engine) rebuild(old *pipeline, failure int64) error {
	e.rebuilding.Store(true)
	defer e.rebuilding.Store(false)
	old.slot.Store(nil)
	<-old.sched.Stop()
	exec := e.exec
	select {
	case <-old.gpu.Stop():
		exec.Rest() // which a GPU-step that failed did not say
	case <-time.After(rebuildPatience):
		// The old step may still write: its memory is left to it.
		var err error
		if exec, err = e.newExecutor(); err != nil {
			return fmt.Errorf("actors: rebuild: %w", err)
		}
		e.exec = exec
	}
	failed, again := 0, 0
	for _, s := range e.registry.snapshot() {
		if s.posted.Load() && s.place.Load() && (s.Bill.At(waybill.FirstToken) != 0 || s.Bill.Reason() != waybill.Running) {
			e.failSequence(s, errInternal)
			e.released(s)
			failed++
		}
	}
	e.stepFinished()
	if err := e.startPipeline(old.epoch+1, exec); err != nil {
		return fmt.Errorf("actors: rebuild: %w", err)
	}
	for _, s := range e.registry.snapshot() {
		if s.posted.Load() && s.place.Load() {
			s.reset()
			e.tellScheduler(admit{s})
			again++
		}
	}
	e.restarts.lost(failure, "sequences that got an error: %d; admitted again: %d; the prefix cache was emptied", failed, again)
	e.metrics.rebuilds.Add(1)
	return nil
}
