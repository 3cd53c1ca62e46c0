package sched

// How a block is marked by the plan in the making.
const (
	markHit   = 1 // found in the prefix index
	markTaken = 2 // to be overwritten
	markSpare = 3 // a preempted sequence's own
)

// planner makes one plan without committing anything.
type planner struct {
	*Core
	plan    *Plan
	cursor  blockIdx   // next free block to look at
	spare   []blockIdx // blocks of preempted sequences
	avail   int        // free and spare blocks not named by the plan yet
	gone    map[SeqID]bool
	dropped map[blockIdx]int32 // holders that preemptions take away
	load    load
	slots   int
	logits  int // prompt rows whose logits are wanted
}

// Next proposes the step that follows the running one (or the last one), or nil
// if there is nothing to do. It commits nothing. The plan must not be changed; it
// is the caller's until the core is told what became of it (Publish of another
// one, Void, Done of its step, Discard).
func (c *Core) Next() *Plan {
	c.version++
	p := planner{
		Core: c, plan: c.newPlan(),
		cursor: c.pool.head, avail: c.pool.free, slots: c.cfg.MaxSeqs - len(c.running),
	}
	p.decodes()
	p.prefills()
	p.plan.Expected = p.cost.predict(p.load)
	if len(p.plan.Rows) == 0 {
		c.Discard(p.plan)
		p.plan = nil
	}
	if c.record != nil {
		c.note(Event{Op: "next", Plan: p.plan.Describe()})
	}
	return p.plan
}

// Publish says that p (nil: nothing) is on offer and that what was on offer
// before was not taken: that plan is reused, nobody may hold it.
func (c *Core) Publish(p *Plan) {
	e := Event{Op: "publish"}
	if p != nil {
		e.Version = p.Version
	}
	c.note(e)
	if c.proposed != p {
		c.Discard(c.proposed)
	}
	c.proposed = p
	if p != nil {
		for i := range p.Rows {
			if s := c.seqs[p.Rows[i].Seq]; s != nil {
				s.plan = p.Version
			}
		}
	}
	c.sweep()
}

// Offered returns the plan on offer, or nil.
func (c *Core) Offered() *Plan { return c.proposed }

// pending reports whether the running step will yield a token for s.
func (c *Core) pending(s *seq) bool {
	return c.inFlight != nil && s.step == c.lastStep && c.inFlight.Rows[s.row].Sample
}

// decodes adds a row for every sequence that is past its prompt. Rows that need
// a block when none is free preempt the youngest sequence.
func (p *planner) decodes() {
	for _, s := range p.running {
		if p.gone[s.ID] {
			continue
		}
		row := Row{
			Seq: s.ID, Start: s.computed, Len: 1, From: -1, Sample: true, Generated: s.generated,
			PromptLen: s.promptLen, Limits: s.Limits, Params: s.Params,
		}
		switch {
		case p.pending(s):
			if row.Generated++; row.Generated >= s.Limits.MaxTokens {
				continue // the token that is under way is its last
			}
			row.From = s.row
		case s.remaining() == 1 && s.computed >= s.promptLen:
			row.Tokens = s.tokens[s.computed : s.computed+1]
		default:
			continue
		}
		if row.Blocks = s.blocks; s.computed/p.pool.size >= len(s.blocks) {
			if !p.room(s) {
				continue
			}
			row.Blocks = append(append(make([]blockIdx, 0, len(s.blocks)+1), s.blocks...), p.take())
		}
		p.add(row)
		p.plan.DecodeRows++
	}
}

// room makes one block available for s, by preemption if it must, and reports
// whether s may go on.
func (p *planner) room(s *seq) bool {
	for p.avail == 0 {
		if len(p.dying) > 0 {
			return false // blocks come back when the running step ends
		}
		v := p.victim()
		if v == nil {
			return false
		}
		if v == s && len(p.running)-len(p.plan.preempts) == 1 {
			panic("BUG: sched: the pool does not hold one sequence of the model's length")
		}
		p.preempt(v)
		if v == s {
			return false
		}
	}
	return true
}

// victim returns the youngest running sequence that the plan has not named yet.
func (p *planner) victim() *seq {
	for i := len(p.running) - 1; i >= 0; i-- {
		if s := p.running[i]; !p.gone[s.ID] && !p.has(s.ID) {
			return s
		}
	}
	return nil
}

// has reports whether the plan holds a row of the sequence.
func (p *planner) has(id SeqID) bool {
	for i := range p.plan.Rows {
		if p.plan.Rows[i].Seq == id {
			return true
		}
	}
	return false
}

// preempt marks s as preempted by this plan and its own blocks as spare.
func (p *planner) preempt(s *seq) {
	if p.gone == nil {
		p.gone, p.dropped = map[SeqID]bool{}, map[blockIdx]int32{}
	}
	p.gone[s.ID] = true
	p.plan.preempts = append(p.plan.preempts, s.ID)
	p.slots++
	for _, b := range s.blocks {
		if p.dropped[b]++; p.dropped[b] == p.pool.refs[b] {
			p.mark(b, markSpare)
			p.spare = append(p.spare, b)
			p.avail++
		}
	}
}

func (p *planner) mark(b blockIdx, kind uint64) { p.pool.mark[b] = p.version<<2 | kind }

// marked returns the mark of b in this plan, or 0.
func (p *planner) marked(b blockIdx) uint64 {
	if m := p.pool.mark[b]; m>>2 == p.version {
		return m & 3
	}
	return 0
}

// take names a block to be overwritten. The caller has checked avail.
func (p *planner) take() blockIdx {
	for ; p.cursor != none; p.cursor = p.pool.next[p.cursor] {
		if b := p.cursor; p.marked(b) == 0 {
			p.mark(b, markTaken)
			p.avail--
			return b
		}
	}
	for len(p.spare) > 0 {
		b := p.spare[len(p.spare)-1]
		p.spare = p.spare[:len(p.spare)-1]
		if p.marked(b) == markSpare {
			p.mark(b, markTaken)
			p.avail--
			return b
		}
	}
	panic("BUG: sched: no block although one was counted")
}

func (p *planner) add(r Row) {
	p.load.addRow(&r)
	p.plan.Rows = append(p.plan.Rows, r)
}
