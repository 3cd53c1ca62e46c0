package actors

import (
	"fmt"

	"waybill/actors/mailbox"
	"waybill/actors/waybill"
)

// errInternal is what clients get when an actor failed under their request.
var errInternal = &Failure{
	Status: 500, Type: "InternalServerError",
	Message: "the engine failed while it worked on this request; its log says why",
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

// report books an actor failure, tells the owner of the process, and returns its
// number in the console's timeline.
func (e *Engine) report(f mailbox.Failure) int64 {
	n := e.restarts.add(f)
	if e.cfg.OnReport != nil {
		e.cfg.OnReport(f)
	}
	return n
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
