// Package sched decides what the next step computes: continuous batching,
// chunked prefill under a time budget, paged KV blocks, a prefix cache and
// preemption by recompute. It is a pure state machine: no clock, no goroutine, no
// randomness. The same calls give the same plans, so a run can be replayed from
// its log.
//
// The protocol with the device's owner is: Next proposes a plan that follows the
// running step and commits nothing; Publish says that it is the one on offer;
// when the running step k ends, Done(k) takes its tokens, and Bound(k+1) commits
// what the plan that really runs has named. See docs/adr/0003-late-binding.md.
package sched

import (
	"fmt"
	"time"
)

// Config sizes the scheduler. All fields must be positive unless said.
type Config struct {
	// BlockSize is the tokens in a KV block, NumBlocks the blocks of the pool.
	BlockSize, NumBlocks int
	// MaxSeqs is the number of sequences that may run at once.
	MaxSeqs int
	// MaxBatchedTokens bounds the tokens of one step.
	MaxBatchedTokens int
	// MaxModelLen bounds prompt plus output of a sequence, in tokens. The pool
	// holds at least that many.
	MaxModelLen int
	// PrefixCache switches the prefix cache on.
	PrefixCache bool
	// PrefillChunk bounds a prefill chunk's time while a stream would wait; 0
	// means one decode step, at least MinChunk.
	PrefillChunk time.Duration
	// ChunkUnit is the rows of a device's tile: steps that cannot take all prompts take a
	// multiple of it, decode rows included. 0 means that the device does not care.
	ChunkUnit int
	// Epoch is the pipeline's incarnation.
	Epoch uint64
}

// Fixed limits of the scheduler; each has a test.
const (
	// MinChunk is the least time a prefill chunk gets while a stream would wait:
	// below some 10 ms a chunk's fixed cost outweighs its work.
	MinChunk = 10 * time.Millisecond
	// IdleChunk bounds a chunk when nobody streams. It is the longest wait of a
	// newcomer on an idle server.
	IdleChunk = 50 * time.Millisecond
	// MaxBypass is how many sequences may overtake one that waits for blocks.
	MaxBypass = 16
	// PromptLogitRows bounds the rows of a step whose prompt logits are wanted:
	// each is a whole vocabulary of floats.
	PromptLogitRows = 64
	// minPrefill is the number of prompt tokens that a step takes whatever the
	// cost model says, so that prefill always advances. With 8, the end of a prompt of
	// 6,000 tokens, each of which looks at all before it, made steps of 80 ms of what
	// should have been 25 (8 streams, 2 cores); no larger number is safe at any depth.
	minPrefill = 1
	// sureShare is the part of the prefill budget that the oldest prompt is sure of,
	// as 1 over it: a quarter. With a half, a prompt of 50 tokens beside one of 2,000
	// and 8 streams took six times as long as on an idle server.
	sureShare = 4
	// restEvery is how many steps in a row may hold prefill beside streams before one
	// only decodes: without such steps what a stream costs alone cannot be told from
	// what the prompt costs, and the prompt's share is measured by it. Only prompts that
	// have begun wait for that step.
	restEvery = 16
	// evenFrom is from how many units on (Config.ChunkUnit) a step leaves up to one of them
	// out: at most a fifth of it.
	evenFrom = 4
	// maxSpare is the number of plans kept for reuse: one runs, one is on offer,
	// one is in the making.
	maxSpare = 3
)

// Sequence is what Admit brings.
type Sequence struct {
	// ID names it; never 0.
	ID SeqID
	// Group ties siblings with one prompt (n > 1); 0 means none.
	Group uint64
	// Prompt holds its token ids, [1, MaxModelLen). Not modified.
	Prompt []int32
	// Hashes holds HashBlock of each full block of Prompt.
	Hashes []uint64
	// Limits end its output.
	Limits *Limits
	// PromptLogits asks for the logits of every prompt position.
	PromptLogits bool
	// Params is handed through to the rows.
	Params any
}

// seq is the scheduler's view of a sequence.
type seq struct {
	Sequence
	tokens    []int32 // prompt and committed output
	promptLen int
	generated int
	// computed counts positions in the cache, those of the running step included.
	computed int
	blocks   []blockIdx
	// published counts blocks offered to the prefix index, parent is the id
	// under which the next one is found; 0 after a block that could not be.
	published int
	parent    uint64
	broken    bool // the chain of published blocks has a gap
	hits      int  // blocks held from the index: not its own

	running  bool
	ended    bool   // finished, stopped or aborted: waits for its blocks' release
	step     StepID // last bound step that holds it
	row      int    // its row there
	plan     uint64 // version of the last published plan that holds it
	order    uint64 // age: smaller is older
	bypassed int    // sequences that overtook it
	firstRun bool   // it was bound at least once
	hashes   []uint64
}

// remaining returns the known tokens that are not computed yet.
func (s *seq) remaining() int { return len(s.tokens) - s.computed }

// Stats are counters and gauges of the scheduler.
type Stats struct {
	// Waiting and Running count sequences; Deferred those of the waiting ones that
	// wait for a sibling's prompt and not for room.
	Waiting, Running, Deferred int
	// FreeBlocks counts blocks without a holder, CachedBlocks those of them that
	// hold a prefix, TotalBlocks the pool.
	FreeBlocks, CachedBlocks, TotalBlocks int
	// PrefixQueries and PrefixHits count prompt tokens looked up and found, once
	// per sequence.
	PrefixQueries, PrefixHits int64
	// Preemptions counts sequences that lost their blocks.
	Preemptions int64
	// PromptTokens counts prompt tokens of sequences that were scheduled.
	PromptTokens int64
}

// Core is the scheduler. It is owned by one goroutine.
type Core struct {
	cfg  Config
	pool *blockPool
	cost costModel

	seqs    map[SeqID]*seq
	waiting []*seq // in order of service
	running []*seq // oldest first
	dying   []*seq // ended, their blocks still held

	lastStep StepID   // last step that was bound
	inFlight *Plan    // the bound plan of lastStep while it runs
	bound    []bool   // its rows that run
	results  []Result // of the last step that ended, for the rows that continue it
	proposed *Plan    // on offer, perhaps taken
	mixed    int      // steps in a row that held prefill beside streams
	version  uint64
	nextAge  uint64
	groups   map[uint64]*group
	stats    Stats
	released []SeqID
	record   func(Event) // nil: nobody listens
	spare    []*Plan     // for Next; nobody else holds them
}

// group is a set of siblings that share a prompt.
type group struct {
	leader  SeqID
	ready   bool // the leader's prompt is published, or it is gone
	members int
}

// New returns a scheduler. It fails if cfg cannot work.
func New(cfg Config) (*Core, error) {
	for _, f := range []struct {
		name string
		v    int
	}{
		{"block size", cfg.BlockSize}, {"number of blocks", cfg.NumBlocks}, {"max sequences", cfg.MaxSeqs},
		{"max batched tokens", cfg.MaxBatchedTokens}, {"max model length", cfg.MaxModelLen},
	} {
		if f.v <= 0 {
			return nil, fmt.Errorf("sched: %s is %d, must be positive", f.name, f.v)
		}
	}
	if have := cfg.NumBlocks * cfg.BlockSize; have < cfg.MaxModelLen {
		return nil, fmt.Errorf("sched: %d blocks of %d hold %d tokens, less than the model length %d",
			cfg.NumBlocks, cfg.BlockSize, have, cfg.MaxModelLen)
	}
	if cfg.MaxBatchedTokens < cfg.MaxSeqs {
		return nil, fmt.Errorf("sched: %d batched tokens cannot hold %d sequences", cfg.MaxBatchedTokens, cfg.MaxSeqs)
	}
	return &Core{
		cfg: cfg, pool: newBlockPool(cfg.NumBlocks, cfg.BlockSize), cost: newCostModel(),
		seqs: map[SeqID]*seq{}, groups: map[uint64]*group{},
	}, nil
}

// Admit takes a sequence into the waiting queue. An id that is known already is
// ignored: Admit is idempotent. Errors name what does not fit.
func (c *Core) Admit(s Sequence) error {
	if c.record != nil {
		e := Event{Op: "admit", Sequence: s}
		e.Sequence.Params = nil
		c.note(e)
	}
	if c.seqs[s.ID] != nil {
		return nil
	}
	switch n := len(s.Prompt); {
	case n == 0:
		return fmt.Errorf("sched: admit %d: empty prompt", s.ID)
	case n > c.cfg.MaxModelLen || n == c.cfg.MaxModelLen && s.Limits.MaxTokens > 0:
		return fmt.Errorf("sched: admit %d: prompt has %d tokens, limit %d", s.ID, n, c.cfg.MaxModelLen)
	}
	if n := len(s.Prompt) + s.Limits.MaxTokens; n > c.cfg.MaxModelLen {
		return fmt.Errorf("sched: admit %d: prompt and output may reach %d tokens, limit %d", s.ID, n, c.cfg.MaxModelLen)
	}
	c.nextAge++
	q := &seq{
		Sequence: s, tokens: s.Prompt[:len(s.Prompt):len(s.Prompt)], promptLen: len(s.Prompt),
		order: c.nextAge, hashes: s.Hashes[:len(s.Hashes):len(s.Hashes)],
	}
	c.seqs[s.ID] = q
	c.waiting = append(c.waiting, q)
	if s.Group != 0 {
		g := c.groups[s.Group]
		if g == nil {
			g = &group{leader: s.ID, ready: !c.cfg.PrefixCache || len(s.Prompt) <= c.cfg.BlockSize}
			c.groups[s.Group] = g
		}
		g.members++
	}
	return nil
}

// Abort ends a sequence. Its row of a step that runs is computed to the end, its
// blocks are freed when no bound or offered plan holds it. Unknown ids are
// ignored.
func (c *Core) Abort(id SeqID) {
	c.note(Event{Op: "abort", ID: id})
	c.leave(id)
}

// leave ends a sequence that somebody outside has ended.
func (c *Core) leave(id SeqID) {
	if s := c.seqs[id]; s != nil && !s.ended {
		c.end(s)
		c.sweep()
	}
}

// Stopped ends a sequence whose stop string the Detokenizer found.
func (c *Core) Stopped(id SeqID) {
	c.note(Event{Op: "stopped", ID: id})
	c.leave(id)
}

// end moves a sequence to the dying ones.
func (c *Core) end(s *seq) {
	s.ended = true
	if s.running {
		c.running = without(c.running, s)
	} else {
		c.waiting = without(c.waiting, s)
	}
	c.dying = append(c.dying, s)
	if g := c.groups[s.Group]; s.Group != 0 && g != nil {
		if g.leader == s.ID {
			g.ready = true
		}
		if g.members--; g.members == 0 {
			delete(c.groups, s.Group)
		}
	}
}

// sweep frees the dying sequences that neither the running step nor the plan on
// offer holds.
func (c *Core) sweep() {
	kept := c.dying[:0]
	for _, s := range c.dying {
		inStep := c.inFlight != nil && s.step == c.lastStep
		inOffer := c.proposed != nil && s.plan == c.proposed.Version
		if inStep || inOffer {
			kept = append(kept, s)
			continue
		}
		c.pool.release(s.blocks)
		s.blocks = nil
		delete(c.seqs, s.ID)
		c.released = append(c.released, s.ID)
	}
	clear(c.dying[len(kept):])
	c.dying = kept
}

// Discard gives a plan back that was never on offer. Nobody may hold it.
func (c *Core) Discard(p *Plan) {
	if p != nil && len(c.spare) < maxSpare {
		c.spare = append(c.spare, p)
	}
}

// newPlan returns an empty plan.
func (c *Core) newPlan() *Plan {
	n := len(c.spare)
	if n == 0 {
		c.spare = append(c.spare, new(Plan))
		n = 1
	}
	p := c.spare[n-1]
	c.spare = c.spare[:n-1]
	clear(p.Rows)
	*p = Plan{
		Epoch: c.cfg.Epoch, Version: c.version, After: c.lastStep,
		Rows: p.Rows[:0], admits: p.admits[:0], preempts: p.preempts[:0], bypassed: p.bypassed[:0],
	}
	return p
}

// Released returns the sequences whose entry and blocks are gone since the last
// call: their places are free.
func (c *Core) Released() []SeqID {
	r := c.released
	c.released = nil
	return r
}

// Stats returns the scheduler's counters.
func (c *Core) Stats() Stats {
	st := c.stats
	st.Waiting, st.Running = len(c.waiting), len(c.running)
	st.FreeBlocks, st.TotalBlocks = c.pool.free, c.cfg.NumBlocks
	st.CachedBlocks = len(c.pool.index)
	if len(c.groups) > 0 {
		for _, s := range c.waiting {
			if c.siblingWaits(s) {
				st.Deferred++
			}
		}
	}
	return st
}

// Idle reports whether no sequence is known.
func (c *Core) Idle() bool { return len(c.seqs) == 0 }

// Calibrate feeds the cost model with a measured step of n tokens that follow
// start tokens of context.
func (c *Core) Calibrate(start, n int, elapsed time.Duration) {
	c.note(Event{Op: "calibrate", Start: start, Len: n, Elapsed: elapsed})
	var l load
	if n == 1 {
		l.decode(start)
	} else {
		l.add(start, n)
	}
	c.cost.learn(l, elapsed)
}

// Predict returns the expected length of a plan's step.
func (c *Core) Predict(p *Plan) time.Duration { return c.cost.predict(loadOf(p)) }

// without removes s from list, keeping order.
func without(list []*seq, s *seq) []*seq {
	for i := range list {
		if list[i] == s {
			copy(list[i:], list[i+1:])
			list[len(list)-1] = nil
			return list[:len(list)-1]
		}
	}
	return list
}
