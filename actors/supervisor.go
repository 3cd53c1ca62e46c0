package actors

import (
	"errors"
	"fmt"
	"time"

	"waybill/actors/mailbox"
	"waybill/actors/waybill"
)

// errInternal is what clients get when an actor failed under their request.
var errInternal = &Failure{
	Status: 500, Type: "InternalServerError",
	Message: "the engine failed while it worked on this request; its log says why",
}

// pipelineFailed tells the Supervisor that Scheduler or GPU-step failed.
// From: the failed actor's goroutine. Owner: Supervisor.
type pipelineFailed struct {
	pipe    *pipeline
	failure mailbox.Failure
	number  int64 // in the console's timeline
}

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

// tooMany notes a failure now and reports whether the limit is reached.
func (e *Engine) tooMany(failures *[]int64) bool {
	now := waybill.Now()
	recent := (*failures)[:0]
	for _, t := range *failures {
		if now-t < int64(failureWindow) {
			recent = append(recent, t)
		}
	}
	*failures = append(recent, now)
	return len(*failures) >= maxFailures
}

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

// failSequence ends a sequence, and with it its request, with an error.
func (e *Engine) failSequence(s *Sequence, f *Failure) {
	s.failure.CompareAndSwap(nil, f)
	now := waybill.Now()
	if s.Bill.End(waybill.Error, now) {
		s.tellEnd()
	}
	for _, o := range s.req.seqs {
		if o != s && o.Bill.End(waybill.Abort, now) {
			o.tellEnd()
			e.tellScheduler(abort{o})
		}
	}
}

// forceFail is failSequence for a sequence whose Detokenizer failed: its end may
// have been decided but not told to the client.
func (e *Engine) forceFail(s *Sequence) {
	if s.delivered.Load() {
		return
	}
	e.failSequence(s, errInternal)
	s.tellEnd()
	e.tellScheduler(abort{s})
}

// onDetokenizerFailure answers the sequences that the failed instance held.
func (e *Engine) onDetokenizerFailure(a *detokActor, f mailbox.Failure) mailbox.Directive {
	e.restarts.lost(e.report(f), "sequences that got an error: %d", len(a.live))
	for s := range a.live {
		e.forceFail(s)
	}
	switch m := f.Message.(type) {
	case *tokenBatch:
		for i := range m.tokens {
			e.forceFail(m.tokens[i].seq)
		}
	case endSeq:
		e.forceFail(m.seq)
	}
	return e.restartOrDie(f)
}

// onIntakeFailure answers the request that the failed instance worked on and
// gives the others to its successor.
func (e *Engine) onIntakeFailure(a *intakeActor, f mailbox.Failure) mailbox.Directive {
	e.restarts.lost(e.report(f), "requests that got an error: %d; left to the successor: %d", min(1, len(a.works)), max(0, len(a.works)-1))
	for i, j := range a.works {
		if i == 0 {
			e.refuse(j.req, errInternal)
			a.load.Add(-1)
		} else {
			a.ref.Tell(&intakeWork{j.req})
		}
	}
	return e.restartOrDie(f)
}

// restartOrDie restarts a failed Intake, Detokenizer or Ledger, unless it fails
// too often.
func (e *Engine) restartOrDie(f mailbox.Failure) mailbox.Directive {
	if e.failsTooOften(f) {
		go e.die(fmt.Errorf("%d failures of %s within %v, the last: %v", maxFailures, f.Actor, failureWindow, f.Reason))
	}
	return mailbox.Restart
}

// failsTooOften notes a failure and reports whether its actor has reached the limit.
func (e *Engine) failsTooOften(f mailbox.Failure) bool {
	e.failuresMu.Lock()
	defer e.failuresMu.Unlock()
	list := e.failures[f.Actor]
	often := e.tooMany(&list)
	e.failures[f.Actor] = list
	return often
}

// die answers everybody and tells the owner of the process to end it.
func (e *Engine) die(err error) {
	if !e.dead.CompareAndSwap(false, true) {
		return
	}
	e.rebuilding.Store(true)
	for _, s := range e.registry.snapshot() {
		e.failSequence(s, errInternal)
	}
	e.cfg.OnFatal(err)
}
