package sched

import (
	"fmt"
	"time"
)

// Out is what a finished step means for one sequence.
type Out struct {
	// Seq is the sequence, Params what Admit brought.
	Seq    SeqID
	Params any
	// Row is its row in the step; Prefill says that it computed prompt tokens.
	Row     int
	Prefill bool
	// Tokens is how many tokens of it the step computed.
	Tokens int
	// HasToken says that Token was appended to its output.
	HasToken bool
	Token    int32
	// Finish says that the output ends here, unless a stop string ended it
	// earlier. The sequence leaves the scheduler.
	Finish Finish
	// Failed says that its logits were not finite, or, with NoMemory, that the device
	// had no memory for the step. The sequence leaves the scheduler.
	Failed, NoMemory bool
}

// Done takes the results of the running step, one per row of its plan: it
// appends tokens, ends sequences and publishes blocks that the step filled. outs
// is appended to.
func (c *Core) Done(step StepID, results []Result, elapsed time.Duration, outs []Out) ([]Out, error) {
	if c.record != nil {
		c.note(Event{Op: "done", Step: step, Results: append([]Result(nil), results...), Elapsed: elapsed})
	}
	if c.inFlight == nil || step != c.lastStep {
		return outs, fmt.Errorf("sched: step %d ended, but step %d is the last one and in flight: %t", step, c.lastStep, c.inFlight != nil)
	}
	if len(results) != len(c.inFlight.Rows) {
		return outs, fmt.Errorf("sched: step %d has %d results for %d rows", step, len(results), len(c.inFlight.Rows))
	}
	plan := c.inFlight
	c.results = append(c.results[:0], results...)
	var l load
	for i := range plan.Rows {
		if !c.bound[i] {
			continue
		}
		row := &plan.Rows[i]
		l.addRow(row)
		s := c.seqs[row.Seq]
		if s == nil {
			panic("BUG: sched: a sequence of the running step is gone")
		}
		if s.ended {
			continue
		}
		outs = append(outs, c.take(s, i, row, results[i]))
	}
	c.cost.learn(l, elapsed)
	c.inFlight = nil
	c.Discard(plan)
	c.sweep()
	return outs, nil
}

// take applies one row's result to its sequence.
func (c *Core) take(s *seq, i int, row *Row, r Result) Out {
	o := Out{Seq: s.ID, Params: s.Params, Row: i, Prefill: row.Start < s.promptLen, Tokens: row.Len}
	if r.Failed {
		c.withdraw(s)
		c.end(s)
		o.Failed, o.NoMemory = true, r.NoMemory
		return o
	}
	c.publish(s)
	if g := c.groups[s.Group]; s.Group != 0 && g.leader == s.ID && s.computed >= s.promptLen {
		g.ready = true
	}
	switch {
	case row.Sample:
		s.tokens = append(s.tokens, r.Token)
		s.generated++
		o.HasToken, o.Token = true, r.Token
		o.Finish = s.Limits.finish(r.Token, s.generated)
	case s.Limits.MaxTokens == 0 && s.computed == s.promptLen:
		o.Finish = FinishLength
	}
	if o.Finish != NotFinished {
		c.end(s)
	}
	return o
}

// publish offers the blocks of s that are full to the prefix index.
func (c *Core) publish(s *seq) {
	if !c.cfg.PrefixCache {
		return
	}
	size := c.pool.size
	for !s.broken && (s.published+1)*size <= s.computed {
		i := s.published
		id := c.pool.publish(s.blocks[i], s.parent, s.hash(i, size), s.tokens[i*size:(i+1)*size])
		if id == 0 {
			s.broken = true
			return
		}
		s.parent = id
		s.published++
	}
}

// withdraw takes the blocks that a failed sequence filled out of the index.
func (c *Core) withdraw(s *seq) {
	for _, b := range s.blocks[min(s.hits, len(s.blocks)):] {
		c.pool.forget(b)
	}
	s.broken = true
}

// Commit is what a bound plan meant for sequences.
type Commit struct {
	// First were scheduled for the first time, Resumed again after a preemption.
	First, Resumed []SeqID
	// Preempted lost their blocks.
	Preempted []SeqID
}

// Bound commits the plan on offer: it runs as step.
func (c *Core) Bound(step StepID, version uint64) (done Commit, err error) {
	c.note(Event{Op: "bound", Step: step, Version: version})
	plan := c.proposed
	if plan == nil || plan.Version != version {
		return done, fmt.Errorf("sched: step %d runs plan %d, which is not on offer", step, version)
	}
	if c.inFlight != nil || step != c.lastStep+1 {
		return done, fmt.Errorf("sched: step %d was bound after step %d, in flight: %t", step, c.lastStep, c.inFlight != nil)
	}
	c.bound, _ = plan.Bind(c.results, c.bound)
	c.inFlight, c.lastStep, c.proposed = plan, step, nil
	if plan.PrefillTokens > 0 && plan.DecodeRows > 0 {
		c.mixed++
	} else {
		c.mixed = 0
	}
	for i := range plan.Rows {
		if c.bound[i] {
			s := c.seqs[plan.Rows[i].Seq]
			s.step, s.row = step, i
		}
	}
	for _, id := range plan.preempts {
		if s := c.seqs[id]; s != nil && s.running {
			c.preempt(s)
			done.Preempted = append(done.Preempted, id)
		}
	}
	c.sweep()
	for _, id := range plan.bypassed {
		if s := c.seqs[id]; s != nil {
			s.bypassed++
		}
	}
	admits := plan.admits
	for i := range plan.Rows {
		admitted := len(admits) > 0 && admits[0].row == i
		hits := 0
		if admitted {
			hits = admits[0].hits
			admits = admits[1:]
		}
		if !c.bound[i] {
			continue
		}
		row := &plan.Rows[i]
		s := c.seqs[row.Seq]
		if admitted {
			c.admitted(s, row, hits, &done)
		} else {
			for _, b := range row.Blocks[len(s.blocks):] {
				c.pool.take(b)
			}
		}
		s.blocks = row.Blocks
		s.computed = row.Start + row.Len
	}
	return done, nil
}

// Void says that the plan on offer was taken but not run: all its rows were left
// out, or it did not follow the step that had ended. Other versions are ignored.
func (c *Core) Void(version uint64) {
	c.note(Event{Op: "void", Version: version})
	if c.proposed != nil && c.proposed.Version == version {
		c.Discard(c.proposed)
		c.proposed = nil
		c.sweep()
	}
}

// admitted moves a waiting sequence to the running ones and gives it its blocks.
func (c *Core) admitted(s *seq, row *Row, hits int, done *Commit) {
	for _, b := range row.Blocks[:hits] {
		c.pool.hold(b)
	}
	for _, b := range row.Blocks[hits:] {
		c.pool.take(b)
	}
	s.hits, s.published, s.broken = hits, hits, false
	s.parent = 0
	if hits > 0 {
		s.parent = c.pool.entries[row.Blocks[hits-1]].id
	}
	if s.firstRun {
		done.Resumed = append(done.Resumed, s.ID)
	} else {
		s.firstRun = true
		done.First = append(done.First, s.ID)
		c.stats.PromptTokens += int64(s.promptLen)
		if c.cfg.PrefixCache && !s.PromptLogits {
			c.stats.PrefixQueries += int64(s.promptLen)
			c.stats.PrefixHits += int64(hits * c.pool.size)
		}
	}
	if s.ended {
		return
	}
	c.waiting = without(c.waiting, s)
	s.running = true
	at := len(c.running)
	for at > 0 && c.running[at-1].order > s.order {
		at--
	}
	c.running = append(c.running, nil)
	copy(c.running[at+1:], c.running[at:])
	c.running[at] = s
}

// preempt takes a running sequence's blocks and puts it at the head of the
// waiting ones. Its tokens are kept and computed again later.
func (c *Core) preempt(s *seq) {
	c.running = without(c.running, s)
	s.running = false
	c.pool.release(s.blocks)
	s.blocks, s.computed, s.published, s.parent, s.hits = nil, 0, 0, 0, 0
	c.waiting = append(c.waiting, nil)
	copy(c.waiting[1:], c.waiting)
	c.waiting[0] = s
	c.stats.Preemptions++
}

// CachedTokens returns the prompt tokens of a running sequence that the prefix
// cache spared.
func (c *Core) CachedTokens(id SeqID) int {
	if s := c.seqs[id]; s != nil {
		return min(s.hits*c.pool.size, s.promptLen)
	}
	return 0
}
