package actors

import (
	"fmt"
	"slices"
	"time"

	"waybill/actors/sched"
	"waybill/kernels"
	"waybill/model"
	"waybill/model/sampling"
)

// deviceExecutor runs steps on a device that computes beside the host: Launch only
// queues, Wait polls. The device chooses tokens; only the logits of rows with a mask
// come to the host's sampler.
type deviceExecutor struct {
	*hostExecutor
	step    kernels.Stepper
	forward kernels.Forward
	picked  []kernels.Picked
	started error
	ended   time.Duration // of the last step, by the device's clock; 0: none
	idle    time.Duration // between the last two
	host    time.Duration // the host's part of it

	// ahead is what was prepared, of the plan of that version, if ready says so.
	ahead   planned
	version uint64
	ready   bool
}

// newDeviceExecutor makes the KV memory and, if scratch is nil, the activations on the
// device.
func newDeviceExecutor(m *model.Model, step kernels.Stepper, spec kernels.CacheSpec, maxTokens, maxLogits int, scratch *model.Scratch) (*deviceExecutor, error) {
	host, err := newHostExecutor(m, spec, maxTokens, maxLogits, scratch, false)
	if err != nil {
		return nil, err
	}
	x := &deviceExecutor{hostExecutor: host, step: step}
	x.logits = make([]float32, host.vocab) // one row at a time
	x.forward = func(b *kernels.Batch) kernels.Buffer { return m.Forward(b, x.cache, x.scratch) }
	return x, nil
}

// Launch queues the step. Rows of one token go first: the device has faster kernels
// for them.
func (x *deviceExecutor) Launch(plan *sched.Plan, keep []bool, results []sched.Result) {
	if x.prepared(plan, keep) {
		x.planned, x.ahead = x.ahead, x.planned
		for i := range x.rows {
			if r := &plan.Rows[i]; r.From >= 0 {
				x.batch.Tokens[i] = results[r.From].Token
			}
		}
		x.started = x.step.StartPrepared(x.batch.Tokens)
		return
	}
	x.reset(plan)
	for _, decode := range []bool{true, false} {
		for i := range plan.Rows {
			if keep[i] && (plan.Rows[i].Len == 1) == decode {
				x.add(i, x.size, results)
			}
		}
	}
	x.draw(false)
	x.started = x.step.Start(&x.batch, x.forward)
}

// prepared reports whether plan was prepared, and forgets what was.
func (x *deviceExecutor) prepared(plan *sched.Plan, keep []bool) bool {
	ready := x.ready && x.ahead.plan == plan && x.version == plan.Version && !slices.Contains(keep, false)
	x.ready = false
	return ready
}

// Prepare writes what the device needs of a plan of decoding rows, but for their tokens. If
// the step ends soon, the beginning of the next one is queued behind it.
func (x *deviceExecutor) Prepare(plan *sched.Plan, soon bool) {
	x.ready = false
	for i := range plan.Rows {
		if r := &plan.Rows[i]; r.Len != 1 || !r.Sample || r.PromptLogits {
			return
		}
	}
	// The running step's own is set aside.
	x.planned, x.ahead = x.ahead, x.planned
	x.reset(plan)
	for i := range plan.Rows {
		x.add(i, x.size, nil)
	}
	x.ready = x.draw(true) && x.step.Prepare(&x.batch)
	x.version = plan.Version
	x.planned, x.ahead = x.ahead, x.planned
	if x.ready && soon {
		x.step.QueueAhead()
	}
}

// Rest gives up what was queued ahead of its tokens.
func (x *deviceExecutor) Rest() {
	x.ready = false
	x.step.GiveUp()
}

// draw says how the step's tokens are drawn, if not all take the largest logit. ahead
// says that the tokens of rows that follow others are not known yet; it returns false if
// a draw depends on them.
func (x *deviceExecutor) draw(ahead bool) bool {
	b := &x.batch
	for i := range x.rows {
		h := &x.rows[i]
		if h.sampleAt < 0 {
			continue
		}
		r := &x.plan.Rows[h.row]
		s := r.Params.(*Sequence)
		if s.params.TakesLargest(r.Generated) {
			h.plain = h.promptFirst < 0
			continue
		}
		pending := 0
		if ahead && r.From >= 0 {
			if pending = 1; s.params.DependsOnOutput() {
				return false
			}
		}
		d, ok := s.params.Draw(s.sampler, pending)
		if !ok {
			continue
		}
		if len(b.Draws) == 0 {
			b.Draws = append(b.Draws, make([]kernels.Draw, len(b.Logits))...)
		}
		b.Draws[h.sampleAt] = d
	}
	return true
}

// Wait polls until the step's tokens are on the host.
func (x *deviceExecutor) Wait(results []sched.Result, extras []*tokenExtras, meanwhile kernels.Meanwhile) error {
	before := x.ended
	x.ended, x.idle, x.host = 0, -1, -1 // after a step that fails too
	if x.started != nil {
		return x.started
	}
	x.picked = append(x.picked[:0], make([]kernels.Picked, len(x.batch.Logits))...)
	for i := range results {
		results[i] = sched.Result{Dropped: true}
	}
	at, err := x.step.Finish(x.picked, meanwhile)
	if err != nil {
		return err
	}
	if before != 0 {
		x.idle, x.host = at.Started-before, at.Launch
	}
	x.ended = at.Ended
	for i := range x.rows {
		h := &x.rows[i]
		res := &results[h.row]
		res.Dropped = false
		if h.plain {
			p := &x.picked[h.sampleAt]
			res.Token, res.Failed = p.Token, !p.Finite
			continue
		}
		if err := x.finish(*h, res, extras); err != nil {
			return err
		}
	}
	return nil
}

// Idle returns the device's rest between the last two steps.
func (x *deviceExecutor) Idle() (device, host time.Duration) { return x.idle, x.host }

// finish takes or samples one row's token.
func (x *deviceExecutor) finish(h hostRow, res *sched.Result, extras []*tokenExtras) error {
	s := x.plan.Rows[h.row].Params.(*Sequence)
	if h.promptFirst >= 0 {
		e, failed, err := x.promptRows(h, s)
		if res.Failed = failed; err != nil || failed {
			return err
		}
		extras[h.row] = e
	}
	if h.sampleAt < 0 {
		return nil
	}
	p := x.picked[h.sampleAt]
	if !p.Finite {
		res.Failed = true
		return nil
	}
	if p.Drawn || s.params.TakesLargest(x.plan.Rows[h.row].Generated) {
		if p.Token < 0 { // none is allowed
			res.Failed = true
			return nil
		}
		res.Token = p.Token
		s.sampler.Append(p.Token)
		if p.Drawn && s.req.Sampling.Logprobs != sampling.NoLogprobs {
			out := sampling.Result{Token: p.Token, Logprob: p.Logprob, Rank: int(p.Rank), Top: p.Top}
			if extras[h.row] == nil {
				extras[h.row] = &tokenExtras{}
			}
			extras[h.row].sampled = tokenLogprobs(out)
		}
		return nil
	}
	if err := x.step.ReadLogits(x.logits, h.sampleAt); err != nil {
		return err
	}
	h.sampleAt = 0 // the host holds this one row
	x.sample(h, s, res, extras)
	return nil
}

// promptRows describes the prompt tokens whose predictions the row computed. failed
// says that a row of logits is not finite.
func (x *deviceExecutor) promptRows(h hostRow, s *Sequence) (all *tokenExtras, failed bool, err error) {
	r := &x.plan.Rows[h.row]
	all = &tokenExtras{promptStart: r.Start + 1}
	if r.Start == 0 {
		all.promptStart = 0
		all.prompt = append(all.prompt, TokenLogprobs{ID: s.ids[0], Missing: true})
	}
	for i := range h.promptCount {
		if err := x.step.ReadLogits(x.logits, h.promptFirst+i); err != nil {
			return nil, false, err
		}
		out, err := x.sampler.Logprobs(x.logits, s.ids[r.Start+i+1], s.req.PromptTop)
		if err != nil {
			return nil, true, nil
		}
		all.prompt = append(all.prompt, *tokenLogprobs(out))
	}
	return all, false, nil
}

// warm runs a step as hostExecutor.warm does. The first loads code and the second is
// recorded, so the third is timed.
func (x *deviceExecutor) warm(start, n, maxLen int) (time.Duration, error) {
	b := x.warmBatch(start, n, maxLen)
	if b == nil {
		return 0, nil
	}
	var took time.Duration
	for range 3 {
		from := time.Now()
		if err := x.run(b); err != nil {
			return 0, err
		}
		took = time.Since(from)
	}
	return took, nil
}

// run computes a step whose tokens nobody wants.
func (x *deviceExecutor) run(b *kernels.Batch) error {
	if err := x.step.Start(b, x.forward); err != nil {
		return err
	}
	_, err := x.step.Finish(make([]kernels.Picked, len(b.Logits)), nil)
	return err
}

// record runs steps of all sizes up to maxSeqs twice, so that none is recorded while
// somebody waits.
func (x *deviceExecutor) record(maxSeqs int) error {
	for _, n := range x.step.Sizes() {
		b := &kernels.Batch{}
		for i := range n {
			b.Tokens, b.Positions = append(b.Tokens, 0), append(b.Positions, 0)
			b.Slots, b.Logits = append(b.Slots, 0), append(b.Logits, int32(i))
			b.Seqs = append(b.Seqs, kernels.BatchSeq{First: i, Len: 1, Blocks: []int32{0}})
		}
		// With the largest logits, then with tokens drawn.
		for i := range 4 {
			if i == 2 {
				b.Draws = make([]kernels.Draw, n)
				b.Draws[0] = kernels.Draw{On: true, Scale: 1, TopP: 1, Logprobs: sampling.NoLogprobs}
			}
			if err := x.run(b); err != nil {
				return fmt.Errorf("actors: record a step of %d rows: %w", n, err)
			}
		}
		if n >= maxSeqs {
			break
		}
	}
	return nil
}

// warmSteps are the steps of a warm-up: long enough to tell the cost of a token from
// that of reading the weights.
func (x *deviceExecutor) warmSteps() [][2]int {
	return [][2]int{{0, 64}, {64, 1}, {0, 512}, {512, 1}, {0, 2048}, {2048, 2048}, {2048, 1}}
}
