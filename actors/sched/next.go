package sched

import "time"

// maxLookahead bounds how many waiting sequences one proposal examines, so that
// an event costs the same with 10 and with 10,000 waiting.
const maxLookahead = 32

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

// candidate is a sequence that wants prefill.
type candidate struct {
	s       *seq
	waiting bool
	hits    []blockIdx // prefix found, if waiting
	start   int
	rest    int   // tokens still to compute
	over    SeqID // a sequence that waits for blocks and is overtaken, or 0
}

// prefills fills the step with prompt tokens. The oldest candidate is sure of
// a quarter of the budget; the rest goes to those that fit into it whole, and what
// they leave to the shortest of the others, chunk by chunk: a short prompt
// overtakes a long one without starving it, however small a chunk is.
func (p *planner) prefills() {
	cands := p.candidates()
	if len(cands) == 0 || p.rests(cands) {
		return
	}
	limit := p.prefillLimit()
	tokens := p.cfg.MaxBatchedTokens - p.plan.DecodeRows
	head, wanted := cands[0], 0
	for i := range cands {
		wanted += cands[i].rest
	}
	total := max(p.cost.tokensWithin(p.load, head.start, tokens, limit), min(minPrefill, tokens))
	sure := min(head.rest, (total+sureShare-1)/sureShare)
	// The others' part of the time is more tokens for prompts that begin than for
	// the end of a long one, whose tokens look at all that precede them.
	idle := p.cost.predict(p.load)
	left := (limit - idle) - (limit-idle)/sureShare
	others := max(total-sure, p.cost.tokensWithin(p.load, 0, tokens-sure, idle+left))
	var short, rest []candidate
	used, shortest := 0, -1
	for _, c := range cands[1:] {
		// What is left of a long prompt may be few tokens and much time.
		if took := p.timeOf(c); used+c.rest <= others && took <= left {
			used += c.rest
			left -= took
			short = append(short, c)
			continue
		}
		if shortest < 0 || c.rest < rest[shortest].rest {
			shortest = len(rest)
		}
		rest = append(rest, c)
	}
	whole, part := used, 0
	// Prompts with as much to do stay in their order: sharing would only delay the
	// first. Time tells and not tokens: the last hundred of a long prompt held up
	// prompts of 50 for half a second.
	if shortest >= 0 && 2*p.timeOf(rest[shortest]) <= p.timeOf(head) {
		part = p.cost.tokensWithin(p.load, rest[shortest].start, others-used, idle+left)
		used += part
	}
	n, least := min(head.rest, max(total-used, sure)), sure
	if n == head.rest {
		least = n
	}
	budget := max(total, sure+used)
	if part == 0 {
		shortest = -1
	}
	least += ending(rest, shortest, budget-n-used)
	out := p.uneven(budget, wanted, least+whole)
	budget -= out
	if n < head.rest {
		fewer := min(out, n-sure)
		n, out = n-fewer, out-fewer
	}
	part = max(0, part-out)
	p.chunk(head, n, &budget)
	for _, c := range short {
		p.chunk(c, c.rest, &budget)
	}
	if part > 0 {
		p.chunk(rest[shortest], part, &budget)
		rest = append(rest[:shortest], rest[shortest+1:]...)
	}
	for _, c := range rest {
		n := min(c.rest, budget, p.cost.tokensWithin(p.load, c.start, budget, limit))
		p.chunk(c, n, &budget)
	}
}

// ending returns the tokens of the candidates, but for one (-1: none), that end if they get, one
// after another, what is left over.
func ending(rest []candidate, but, over int) (tokens int) {
	for i := range rest {
		if i == but {
			continue
		}
		if tokens+rest[i].rest > over {
			break
		}
		tokens += rest[i].rest
	}
	return tokens
}

// uneven returns how many tokens of a budget make the step's rows more than a multiple of the
// device's unit: they would cost it as much as a whole one. None, if no more are wanted, or if
// fewer than least would be left, so that prompts that end in this step do so.
func (p *planner) uneven(budget, wanted, least int) int {
	unit, rows := p.cfg.ChunkUnit, p.plan.DecodeRows+budget
	if unit == 0 || wanted <= budget || rows < evenFrom*unit || budget-rows%unit < least {
		return 0
	}
	return rows % unit
}

// timeOf returns how long what is left of a candidate's prompt takes, by itself.
func (p *planner) timeOf(c candidate) time.Duration {
	var l load
	none := p.cost.predict(l)
	l.add(c.start, c.rest)
	return p.cost.predict(l) - none
}

// rests reports whether the step only decodes although there are candidates.
func (p *planner) rests(cands []candidate) bool {
	if p.mixed < restEvery || p.plan.DecodeRows == 0 {
		return false
	}
	for i := range cands {
		if cands[i].waiting {
			return false // a newcomer is not to wait for it
		}
	}
	return true
}

// maxLate bounds, as a part of a chunk, what is left off because steps are late at times.
const maxLate = 4

// prefillLimit returns how long the step may take, prefill included. Chunks that streams wait
// for are to be no longer than they should in nine cases of ten, not in every second one.
func (p *planner) prefillLimit() time.Duration {
	if p.plan.DecodeRows == 0 {
		return IdleChunk
	}
	decode := p.cost.predict(p.load)
	chunk := p.cfg.PrefillChunk
	if chunk == 0 {
		chunk = max(decode, MinChunk)
	}
	return decode + chunk - min(p.cost.late, chunk/maxLate)
}

// chunk adds n tokens of a candidate, if it can be admitted.
func (p *planner) chunk(c candidate, n int, budget *int) {
	if c.s.PromptLogits {
		n = min(n, PromptLogitRows-p.logits)
	}
	if n = min(n, *budget); n <= 0 {
		return
	}
	if c.s.PromptLogits {
		p.logits += n
	}
	s := c.s
	row := Row{
		Seq: s.ID, Start: c.start, Len: n, Tokens: s.tokens[c.start : c.start+n], From: -1,
		Sample:       c.start+n == len(s.tokens) && s.Limits.MaxTokens > 0,
		PromptLogits: s.PromptLogits, Generated: s.generated, PromptLen: s.promptLen,
		Blocks: s.blocks, Limits: s.Limits, Params: s.Params,
	}
	if c.waiting {
		blocks := make([]blockIdx, 0, p.blocksFor(len(s.tokens)))
		blocks = append(blocks, c.hits...)
		for len(blocks) < cap(blocks) {
			blocks = append(blocks, p.take())
		}
		row.Blocks = blocks
		if c.over != 0 {
			p.plan.bypassed = append(p.plan.bypassed, c.over)
		}
		p.plan.admits = append(p.plan.admits, admission{row: len(p.plan.Rows), hits: len(c.hits)})
	}
	*budget -= n
	p.plan.PrefillTokens += n
	p.add(row)
}

func (p *planner) blocksFor(tokens int) int { return (tokens + p.pool.size - 1) / p.pool.size }

// candidates lists the sequences that want prefill, in order of service: running
// ones first, then waiting ones that a slot and blocks are free for. Blocks of
// the latter are set aside as they are listed.
func (p *planner) candidates() []candidate {
	var out []candidate
	for _, s := range p.running {
		if !p.gone[s.ID] && !p.pending(s) && s.remaining() > 0 && !(s.remaining() == 1 && s.computed >= s.promptLen) {
			out = append(out, candidate{s: s, start: s.computed, rest: s.remaining()})
		}
	}
	var blocked *seq
	looked, setAside, overtaken := 0, 0, 0
	for _, s := range p.waiting {
		if p.slots == 0 || looked == maxLookahead {
			break
		}
		if p.siblingWaits(s) {
			continue
		}
		looked++
		if blocked != nil && blocked.bypassed+overtaken >= MaxBypass {
			break
		}
		hits, fresh := p.prefix(s)
		need := p.blocksFor(len(s.tokens)) - len(hits)
		if p.avail-setAside-fresh < need {
			if len(p.plan.preempts) > 0 || len(p.dying) > 0 && len(p.running) == 0 {
				break // what was just taken from others is not for newcomers
			}
			if blocked == nil {
				blocked = s
			}
			continue
		}
		for _, b := range hits {
			if k := p.marked(b); k == markSpare || k == 0 && p.pool.refs[b] == 0 {
				p.avail--
				p.mark(b, markHit)
			}
		}
		setAside += need
		p.slots--
		start := len(hits) * p.pool.size
		c := candidate{s: s, waiting: true, hits: hits, start: start, rest: len(s.tokens) - start}
		if blocked != nil {
			c.over = blocked.ID
			overtaken++
		}
		out = append(out, c)
	}
	return out
}

// siblingWaits reports whether s waits for its group's first sequence to publish
// the prompt that they share.
func (c *Core) siblingWaits(s *seq) bool {
	if s.Group == 0 {
		return false
	}
	g := c.groups[s.Group]
	return !g.ready && g.leader != s.ID
}

// prefix finds the longest known prefix of s, in whole blocks, that leaves at
// least one token to compute. fresh counts those of its blocks that are free.
func (p *planner) prefix(s *seq) (hits []blockIdx, fresh int) {
	if !p.cfg.PrefixCache || s.PromptLogits {
		return nil, 0
	}
	size := p.pool.size
	parent := uint64(0)
	for i := 0; (i+1)*size < len(s.tokens); i++ {
		b, id, ok := p.pool.lookup(parent, s.hash(i, size), s.tokens[i*size:(i+1)*size])
		if !ok || p.marked(b) == markTaken {
			break
		}
		if k := p.marked(b); k == markSpare || k == 0 && p.pool.refs[b] == 0 {
			fresh++
		}
		hits, parent = append(hits, b), id
	}
	return hits, fresh
}

// hash returns the hash of block i, computing those that generation filled.
func (s *seq) hash(i, size int) uint64 {
	for len(s.hashes) <= i {
		n := len(s.hashes)
		s.hashes = append(s.hashes, HashBlock(s.tokens[n*size:(n+1)*size]))
	}
	return s.hashes[i]
}
