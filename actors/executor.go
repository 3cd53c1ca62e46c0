package actors

import (
	"errors"
	"fmt"
	"time"

	"waybill/actors/sched"
	"waybill/kernels"
	"waybill/model"
	"waybill/model/sampling"
)

// hostExecutor runs steps on a Backend and samples on the host.
type hostExecutor struct {
	model   *model.Model
	cache   kernels.Cache
	scratch *model.Scratch
	sampler *sampling.Sampler
	vocab   int
	size    int // tokens in a block

	planned
	logits []float32
}

// planned is what the device gets of a plan.
type planned struct {
	plan  *sched.Plan
	batch kernels.Batch
	rows  []hostRow
}

// hostRow is a row of the step in flight that runs.
type hostRow struct {
	row         int
	promptFirst int // index of its first prompt logits row, or -1
	promptCount int
	sampleAt    int // index of its sampled logits row, or -1
	// plain says that the device's largest logit is the token, and nothing else is wanted.
	// It stays so to the sequence's end, so its sampler need not hear of the token: what
	// belongs to a sequence is best not touched between two steps.
	plain bool
}

// newHostExecutor makes the KV memory and, if scratch is nil, the activations for steps
// of up to maxTokens tokens. With prefault no step is the first to touch KV memory.
func newHostExecutor(m *model.Model, spec kernels.CacheSpec, maxTokens, maxLogits int, scratch *model.Scratch, prefault bool) (*hostExecutor, error) {
	cache, err := m.Backend().NewCache(spec)
	if err != nil {
		return nil, fmt.Errorf("actors: KV memory: %w", err)
	}
	if p, ok := cache.(kernels.Prefaulter); ok && prefault {
		if err := p.Prefault(); err != nil {
			return nil, errors.Join(fmt.Errorf("actors: KV memory: %w", err), cache.Close())
		}
	}
	if scratch == nil {
		if scratch, err = m.NewScratch(maxTokens, maxLogits); err != nil {
			return nil, errors.Join(fmt.Errorf("actors: activations: %w", err), cache.Close())
		}
	}
	vocab := m.Config().VocabSize
	return &hostExecutor{
		model: m, cache: cache, scratch: scratch, sampler: sampling.NewSampler(vocab), vocab: vocab,
		size: spec.BlockSize,
	}, nil
}

// Launch builds the batch; the computing is done in Wait, by the caller's own
// goroutine.
func (x *hostExecutor) Launch(plan *sched.Plan, keep []bool, results []sched.Result) {
	x.reset(plan)
	for i := range plan.Rows {
		if keep[i] {
			x.add(i, x.size, results)
		}
	}
}

// Prepare does nothing: the core that would prepare computes.
func (x *hostExecutor) Prepare(*sched.Plan, bool) {}

// Rest does nothing.
func (x *hostExecutor) Rest() {}

// reset empties the batch for the rows of plan.
func (x *planned) reset(plan *sched.Plan) {
	b := &x.batch
	b.Tokens, b.Positions, b.Slots = b.Tokens[:0], b.Positions[:0], b.Slots[:0]
	b.Seqs, b.Logits, b.Draws = b.Seqs[:0], b.Logits[:0], b.Draws[:0]
	x.plan, x.rows = plan, x.rows[:0]
}

// add appends row i of the plan to the batch, which has size tokens in a block. Without
// results, tokens that are not known yet are 0.
func (x *planned) add(i, size int, results []sched.Result) {
	b, r := &x.batch, &x.plan.Rows[i]
	first := len(b.Tokens)
	switch {
	case r.Tokens != nil:
		b.Tokens = append(b.Tokens, r.Tokens...)
	case results == nil:
		b.Tokens = append(b.Tokens, 0)
	default:
		b.Tokens = append(b.Tokens, results[r.From].Token)
	}
	for p := r.Start; p < r.Start+r.Len; p++ {
		b.Positions = append(b.Positions, int32(p))
		b.Slots = append(b.Slots, r.Blocks[p/size]*int32(size)+int32(p%size))
	}
	b.Seqs = append(b.Seqs, kernels.BatchSeq{First: first, Len: r.Len, Context: r.Start, Blocks: r.Blocks})
	h := hostRow{row: i, promptFirst: -1, sampleAt: -1}
	if r.PromptLogits {
		// The logits at position p describe the prompt's token p+1.
		h.promptFirst = len(b.Logits)
		for p := r.Start; p < r.Start+r.Len && p+1 < r.PromptLen; p++ {
			b.Logits = append(b.Logits, int32(first+p-r.Start))
			h.promptCount++
		}
	}
	if r.Sample {
		h.sampleAt = len(b.Logits)
		b.Logits = append(b.Logits, int32(first+r.Len-1))
	}
	x.rows = append(x.rows, h)
}

// Wait computes the step and samples.
func (x *hostExecutor) Wait(results []sched.Result, extras []*tokenExtras, _ kernels.Meanwhile) error {
	n := len(x.batch.Logits) * x.vocab
	x.hold(n)
	if err := x.model.Step(&x.batch, x.cache, x.scratch, x.logits[:n]); err != nil {
		return err
	}
	for i := range results {
		results[i] = sched.Result{Dropped: true}
	}
	for _, h := range x.rows {
		res := &results[h.row]
		res.Dropped = false
		s := x.plan.Rows[h.row].Params.(*Sequence)
		if h.promptFirst >= 0 {
			e, err := x.promptLogprobs(h, s)
			if err != nil {
				res.Failed = true
				continue
			}
			extras[h.row] = e
		}
		if h.sampleAt >= 0 {
			x.sample(h, s, res, extras)
		}
	}
	return nil
}

// hold makes room for n logits.
func (x *hostExecutor) hold(n int) {
	if len(x.logits) < n {
		x.logits = make([]float32, n)
	}
}

func (x *hostExecutor) row(i int) []float32 { return x.logits[i*x.vocab : (i+1)*x.vocab] }

// sample chooses the row's token.
func (x *hostExecutor) sample(h hostRow, s *Sequence, res *sched.Result, extras []*tokenExtras) {
	out, err := x.sampler.Sample(x.row(h.sampleAt), s.params, s.sampler)
	if err != nil {
		res.Failed = true
		return
	}
	res.Token = out.Token
	s.sampler.Append(out.Token)
	if s.req.Sampling.Logprobs != sampling.NoLogprobs {
		if extras[h.row] == nil {
			extras[h.row] = &tokenExtras{}
		}
		extras[h.row].sampled = tokenLogprobs(out)
	}
}

// promptLogprobs describes the prompt tokens whose predictions the row computed.
func (x *hostExecutor) promptLogprobs(h hostRow, s *Sequence) (*tokenExtras, error) {
	r := &x.plan.Rows[h.row]
	e := &tokenExtras{promptStart: r.Start + 1}
	if r.Start == 0 {
		e.promptStart = 0
		e.prompt = append(e.prompt, TokenLogprobs{ID: s.ids[0], Missing: true})
	}
	top := s.req.PromptTop
	for i := range h.promptCount {
		out, err := x.sampler.Logprobs(x.row(h.promptFirst+i), s.ids[r.Start+i+1], top)
		if err != nil {
			return nil, err
		}
		e.prompt = append(e.prompt, *tokenLogprobs(out))
	}
	return e, nil
}

// tokenLogprobs copies a sampler's report, which holds until its next call only.
func tokenLogprobs(r sampling.Result) *TokenLogprobs {
	return &TokenLogprobs{ID: r.Token, Logprob: r.Logprob, Rank: r.Rank, Top: append([]TokenLogprob(nil), r.Top...)}
}

// Idle returns -1: the host's cores have no clock of their own.
func (x *hostExecutor) Idle() (device, host time.Duration) { return -1, -1 }

// Close gives the KV memory back.
func (x *hostExecutor) Close() error { return x.cache.Close() }

// warm runs a step of n tokens that follow start tokens of context, over the
// first blocks of the pool, and returns its length; 0 if it does not fit.
func (x *hostExecutor) warm(start, n, maxLen int) (time.Duration, error) {
	b := x.warmBatch(start, n, maxLen)
	if b == nil {
		return 0, nil
	}
	x.hold(x.vocab)
	from := time.Now()
	err := x.model.Step(b, x.cache, x.scratch, x.logits[:x.vocab])
	return time.Since(from), err
}

// warmBatch returns the batch of such a step, nil if it does not fit.
func (x *hostExecutor) warmBatch(start, n, maxLen int) *kernels.Batch {
	if start+n > maxLen || start+n > x.cache.Spec().NumBlocks*x.size {
		return nil
	}
	b := &kernels.Batch{Logits: []int32{int32(n - 1)}}
	seq := kernels.BatchSeq{Len: n, Context: start}
	for i := range (start + n + x.size - 1) / x.size {
		seq.Blocks = append(seq.Blocks, int32(i))
	}
	for p := start; p < start+n; p++ {
		b.Tokens = append(b.Tokens, int32(p%x.vocab))
		b.Positions = append(b.Positions, int32(p))
		b.Slots = append(b.Slots, int32(p))
	}
	b.Seqs = []kernels.BatchSeq{seq}
	return b
}

// warmSteps are the steps of a warm-up: context and tokens.
func (x *hostExecutor) warmSteps() [][2]int {
	return [][2]int{{0, 16}, {16, 1}, {0, 64}, {64, 1}, {65, 1}}
}
