package actors

import (
	"time"

	"waybill/actors/sched"
	"waybill/actors/waybill"
)

// schedulerActor owns the scheduler core of one epoch. Handlers only record
// events; the next plan is published in Drained, when the whole picture is known.
type schedulerActor struct {
	engine *Engine
	pipe   *pipeline
	core   *sched.Core

	seqs    map[sched.SeqID]*Sequence
	parked  bool // GPU-step runs nothing and has reported what became of its plan
	changed bool // an event since the last decision
	outs    []sched.Out
	batches []*tokenBatch // by shard, in the making
	steps   stepRing

	// For the gap between steps: when the last one ended, and whether work was
	// left then although no plan was on offer.
	lastEnded int64
	leftBusy  bool
	restGap   int64 // before the step in flight, if it was launched from such a rest
}

// Receive handles one event.
func (a *schedulerActor) Receive(m any) {
	a.engine.fault("scheduler")
	a.changed = true
	switch m := m.(type) {
	case *stepDone:
		a.stepDone(m)
		m.put()
	case admit:
		a.admit(m.seq)
	case abort:
		a.core.Abort(m.seq.ID)
	case stopped:
		a.core.Stopped(m.seq.ID)
	}
	a.release()
}

// admit takes a sequence into the core, unless it has ended on its way.
func (a *schedulerActor) admit(s *Sequence) {
	if a.seqs[s.ID] != nil || !s.place.Load() {
		return // known, or gone already: Admit is idempotent
	}
	if s.Bill.Reason() != waybill.Running {
		a.engine.released(s)
		return
	}
	s.Bill.Stamp(waybill.Queued, waybill.Now())
	err := a.core.Admit(sched.Sequence{
		ID: s.ID, Group: s.group, Prompt: s.ids, Hashes: s.hashes, Limits: s.limits,
		PromptLogits: s.req.PromptLogprobs, Params: s,
	})
	if err != nil {
		a.engine.failSequence(s, &Failure{Status: 400, Type: "BadRequestError", Message: err.Error()})
		a.engine.released(s)
		return
	}
	a.seqs[s.ID] = s
}

// stepDone takes a step's tokens and the news of the next launch.
func (a *schedulerActor) stepDone(m *stepDone) {
	if m.epoch != a.pipe.epoch {
		return
	}
	if m.step != 0 {
		a.finish(m)
	}
	if m.bound != 0 {
		if m.step == 0 && a.leftBusy {
			a.restGap = m.bindAt - a.lastEnded
			a.engine.metrics.gap[gapScheduler].Observe(float64(a.restGap) / 1e9)
		}
		done, err := a.core.Bound(m.boundStep, m.bound)
		if err != nil {
			panic("BUG: " + err.Error())
		}
		for _, id := range done.First {
			a.scheduled(a.seqs[id], m)
		}
		for _, id := range done.Preempted {
			a.seqs[id].Bill.Preempted(m.bindAt)
		}
		for _, id := range done.Resumed {
			a.seqs[id].Bill.Resumed(m.bindAt)
		}
	}
	a.core.Void(m.void)
	a.parked = m.bound == 0
	a.leftBusy = a.parked && !a.core.Idle()
}

// stepFailure is what a request is told whose step failed for it.
func stepFailure(o *sched.Out) *Failure {
	if o.NoMemory {
		return &Failure{
			Status: 503, Type: "ServiceUnavailableError",
			Message: "the device ran out of memory in this request's step; the server goes on, try again",
		}
	}
	return &Failure{
		Status: 500, Type: "InternalServerError",
		Message: "the model produced logits that are not finite for this request",
	}
}

// finish hands the tokens of a finished step to the Detokenizers.
func (a *schedulerActor) finish(m *stepDone) {
	outs, err := a.core.Done(m.step, m.results, time.Duration(m.endedAt-m.launchedAt), a.outs[:0])
	if err != nil {
		panic("BUG: " + err.Error())
	}
	a.outs = outs
	a.steps.add(m.launchedAt, m.endedAt)
	a.lastEnded = m.endedAt
	sampled := 0
	for i := range outs {
		o := &outs[i]
		s := o.Params.(*Sequence)
		if o.Prefill {
			s.Bill.AddChunk(uint64(m.step), o.Tokens, m.launchedAt, m.endedAt)
		}
		if s.Bill.At(waybill.Launched) == 0 {
			s.Bill.Stamp(waybill.Launched, m.launchedAt)
		}
		if o.Failed {
			a.engine.failSequence(s, stepFailure(o))
			continue
		}
		if s.Bill.Reason() != waybill.Running {
			continue
		}
		var extras *tokenExtras
		if o.Row < len(m.extras) {
			extras = m.extras[o.Row]
		}
		if !o.HasToken && o.Finish == sched.NotFinished && extras == nil {
			continue
		}
		if o.HasToken || o.Finish != sched.NotFinished {
			s.Bill.Stamp(waybill.FirstToken, m.endedAt)
			a.engine.places.prefilled(s)
		}
		b := a.batch(s)
		b.at, b.handoff = m.endedAt, m.handoff
		b.tokens = append(b.tokens, tokenFor{seq: s, has: o.HasToken, token: o.Token, finish: o.Finish, extras: extras})
		if o.HasToken {
			sampled++
		}
	}
	m.handoff.done(m.handoff.total - sampled)
	a.engine.metrics.step(m)
	a.engine.lane.add(m.epoch, m, a.restGap)
	a.restGap = 0
	for i, b := range a.batches {
		if b != nil {
			a.batches[i] = nil
			a.engine.tellDetokenizer(a.engine.shards[i], b)
		}
	}
}

// batch returns the batch in the making for the shard of s.
func (a *schedulerActor) batch(s *Sequence) *tokenBatch {
	i := a.engine.shardIndex(s)
	if a.batches[i] == nil {
		a.batches[i] = newTokenBatch()
	}
	return a.batches[i]
}

// scheduled stamps a sequence whose first plan was bound.
func (a *schedulerActor) scheduled(s *Sequence, m *stepDone) {
	b := s.Bill
	b.Stamp(waybill.Scheduled, m.bindAt)
	b.CachedTokens.Store(int64(a.core.CachedTokens(s.ID)))
	waited, longest := a.steps.overlap(b.At(waybill.Queued), b.At(waybill.Tokenized), m.bindAt)
	b.StepsWaited.Store(int64(waited))
	b.WaitStepNs.Store(longest)
}

// release gives back what sequences held whose entries are gone.
func (a *schedulerActor) release() {
	for _, id := range a.core.Released() {
		s := a.seqs[id]
		delete(a.seqs, id)
		a.engine.released(s)
	}
}

// Drained publishes the next plan.
func (a *schedulerActor) Drained() {
	if !a.changed {
		return
	}
	a.changed = false
	a.engine.fault("decide")
	a.publish()
	a.engine.scheduled(a.core.Stats())
}

// publish offers the best plan for what is known now.
func (a *schedulerActor) publish() {
	for {
		offered := a.core.Offered()
		plan := a.core.Next()
		a.engine.lane.offered(plan)
		old := a.pipe.slot.Swap(plan)
		if offered != nil && old == nil {
			// GPU-step took what was on offer: it runs, or is void. The new plan
			// follows the wrong step; the news is on its way.
			if a.pipe.slot.CompareAndSwap(plan, nil) {
				a.pipe.unread(plan)
				a.core.Discard(plan)
			}
			return
		}
		a.pipe.unread(old)
		a.core.Publish(plan)
		a.engine.fault("published")
		if plan != nil {
			if a.parked {
				a.pipe.gpu.Tell(wake{})
			}
			return
		}
		// Withdrawing the offer may have freed blocks that a plan needs.
		released := a.core.Released()
		if len(released) == 0 {
			return
		}
		for _, id := range released {
			s := a.seqs[id]
			delete(a.seqs, id)
			a.engine.released(s)
		}
	}
}
