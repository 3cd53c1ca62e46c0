package actors

import (
	"waybill/actors/sched"
	"waybill/actors/waybill"
	"waybill/model/tokenizer"
)

// detokActor turns tokens into text for the sequences of one shard, finds stop
// strings, and decides the ordinary ends: it reads tokens in order, so an
// earlier stop string wins over a later end-of-sequence.
type detokActor struct {
	engine *Engine
	live   map[*Sequence]struct{}
	text   []byte // of the token in hand
	delta  Delta  // likewise; it escapes to the writer's encoder
}

// detokState is what the Detokenizer remembers of one sequence.
type detokState struct {
	dec     *tokenizer.Decoder
	stops   *stopMatcher
	out     int   // tokens kept
	lastAt  int64 // when the last one was on the host
	started bool  // a delta was sent
	// Since the last delta:
	ids      []int32
	logprobs []TokenLogprobs
	// Until the first delta:
	prompt []TokenLogprobs
}

// Receive handles the tokens of a step, or an end that somebody else decided.
func (a *detokActor) Receive(m any) {
	a.engine.fault("detokenizer")
	switch m := m.(type) {
	case *tokenBatch:
		for i := range m.tokens {
			t := &m.tokens[i]
			h := m.handoff
			if !t.has {
				h = turn{}
			}
			if !a.token(t, m.at, h) {
				h.done(1)
			}
		}
		m.put()
	case endSeq:
		a.end(m.seq)
	}
}

// Drained does nothing: every message is handled at once.
func (a *detokActor) Drained() {}

// state returns what is remembered of s, made at its first message.
func (a *detokActor) state(s *Sequence) *detokState {
	if s.detok == nil {
		r := s.req
		s.detok = &detokState{
			dec:   a.engine.tok.NewDecoder(tokenizer.DecoderOptions{SkipSpecial: !r.KeepSpecial, Continuation: true}),
			stops: newStopMatcher(r.Stop, r.IncludeStop),
		}
		a.live[s] = struct{}{}
	}
	return s.detok
}

// token handles one sequence's share of a step and reports whether the writer
// took over the countdown h.
func (a *detokActor) token(t *tokenFor, at int64, h turn) (handed bool) {
	s := t.seq
	if s.Bill.Reason() != waybill.Running {
		return false
	}
	d := a.state(s)
	if x := t.extras; x != nil {
		a.extras(s, d, x)
	}
	delta := &a.delta
	*delta = Delta{Index: s.Index, StopID: -1, Bill: s.Bill}
	if t.has {
		d.out++
		d.ids = append(d.ids, t.token)
		if d.lastAt != 0 {
			a.engine.metrics.interToken(at - d.lastAt)
		}
		d.lastAt = at
		a.engine.metrics.generated.Add(1)
	}
	text := a.text[:0]
	if t.has && (t.finish != sched.FinishStop || s.req.IncludeStop) {
		text = d.dec.Append(text, t.token)
	}
	if t.finish != sched.NotFinished {
		text = d.dec.Flush(text)
	}
	a.text = text[:0]
	matched := false
	if d.out > s.req.Sampling.MinTokens {
		text, delta.StopString, matched = d.stops.next(text, t.finish != sched.NotFinished)
	}
	switch {
	case matched:
		delta.Finish = waybill.Stop
	case t.finish == sched.FinishStop:
		delta.Finish = waybill.Stop
		for _, id := range s.req.StopIDs {
			if id == t.token {
				delta.StopID = id
			}
		}
	case t.finish == sched.FinishLength:
		delta.Finish = waybill.Length
	}
	if delta.Finish != waybill.Running {
		if !s.Bill.End(delta.Finish, waybill.Now()) {
			return false // abort or error won: its message follows
		}
		s.Bill.Stamp(waybill.LastToken, at)
		s.Bill.OutputTokens.Store(int64(d.out))
		delete(a.live, s)
	}
	if len(text) == 0 && delta.Finish == waybill.Running && !(s.req.Echo && !d.started && t.has) {
		s.Bill.OutputTokens.Store(int64(d.out))
		return false
	}
	handed = a.send(s, d, delta, text, h)
	if delta.Finish != waybill.Running {
		s.delivered.Store(true)
		if matched && t.finish == sched.NotFinished {
			a.engine.tellScheduler(stopped{s})
		}
	}
	return handed
}

// send gives a delta to the sequence's writer.
func (a *detokActor) send(s *Sequence, d *detokState, delta *Delta, text []byte, h turn) bool {
	s.Bill.OutputTokens.Store(int64(d.out))
	if !d.started {
		d.started = true
		delta.First = true
		delta.PromptIDs, delta.PromptLogprobs = s.ids, d.prompt
		if s.req.Echo {
			text = append([]byte(s.text), text...)
		}
		s.Bill.Stamp(waybill.FirstText, waybill.Now())
	}
	if a.engine.cfg.ShowContent {
		s.shownOutput = append(s.shownOutput, text[:min(len(text), shownBytes-len(s.shownOutput))]...)
	}
	delta.Text, delta.IDs, delta.Logprobs = text, d.ids, d.logprobs
	delta.Usage = Usage{Prompt: len(s.ids), Cached: int(s.Bill.CachedTokens.Load()), Completion: d.out}
	if !s.req.writer.delta(delta, h) {
		a.engine.Abort(s.req)
	}
	d.ids, d.logprobs = d.ids[:0], d.logprobs[:0]
	return true
}

// extras keeps logprobs until the delta that they belong to.
func (a *detokActor) extras(s *Sequence, d *detokState, x *tokenExtras) {
	if x.sampled != nil {
		d.logprobs = append(d.logprobs, *x.sampled)
	}
	if len(x.prompt) > 0 {
		// After a preemption positions come a second time.
		d.prompt = append(d.prompt[:min(x.promptStart, len(d.prompt))], x.prompt...)
	}
}

// end tells the writer about an end that somebody else decided.
func (a *detokActor) end(s *Sequence) {
	delete(a.live, s)
	if s.delivered.Swap(true) {
		return
	}
	if d := s.detok; d != nil {
		s.Bill.OutputTokens.Store(int64(d.out))
	}
	if f := s.failure.Load(); f != nil {
		s.req.writer.fail(f)
		return
	}
	s.req.writer.cut()
}
