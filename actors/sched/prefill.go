package sched

import "time"

// shares says what of a step's budget of prompt tokens each candidate gets.
type shares struct {
	// budget is what may be handed out in all, wanted what all candidates have to do.
	budget, wanted int
	// head is the oldest, which gets first and is sure of sure, or of its rest if that is less.
	head        candidate
	first, sure int
	// whole are those that get all of their rest: wholeTokens in all.
	whole       []candidate
	wholeTokens int
	// others are those that do not. The one at shortest, -1 if none, gets part; what is over
	// then goes to them in their order.
	others         []candidate
	shortest, part int
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
	s := p.share(cands, limit)
	p.even(&s)
	left := s.budget
	p.chunk(s.head, s.first, &left)
	for _, c := range s.whole {
		p.chunk(c, c.rest, &left)
	}
	if s.part > 0 {
		p.chunk(s.others[s.shortest], s.part, &left)
		s.others = append(s.others[:s.shortest], s.others[s.shortest+1:]...)
	}
	for _, c := range s.others {
		p.chunk(c, min(c.rest, left, p.cost.tokensWithin(p.load, c.start, left, limit)), &left)
	}
}

// share divides the time until limit.
func (p *planner) share(cands []candidate, limit time.Duration) shares {
	s := shares{head: cands[0], shortest: -1}
	for i := range cands {
		s.wanted += cands[i].rest
	}
	tokens := p.cfg.MaxBatchedTokens - p.plan.DecodeRows
	total := max(p.cost.tokensWithin(p.load, s.head.start, tokens, limit), min(minPrefill, tokens))
	s.sure = min(s.head.rest, (total+sureShare-1)/sureShare)
	// The others' part of the time is more tokens for prompts that begin than for
	// the end of a long one, whose tokens look at all that precede them.
	decode := p.cost.predict(p.load)
	left := (limit - decode) - (limit-decode)/sureShare
	most := max(total-s.sure, p.cost.tokensWithin(p.load, 0, tokens-s.sure, decode+left))
	for _, c := range cands[1:] {
		// What is left of a long prompt may be few tokens and much time.
		if took := p.timeOf(c); s.wholeTokens+c.rest <= most && took <= left {
			s.wholeTokens += c.rest
			left -= took
			s.whole = append(s.whole, c)
			continue
		}
		if s.shortest < 0 || c.rest < s.others[s.shortest].rest {
			s.shortest = len(s.others)
		}
		s.others = append(s.others, c)
	}
	// Prompts with as much to do stay in their order: sharing would only delay the
	// first. Time tells and not tokens: the last hundred of a long prompt held up
	// prompts of 50 for half a second.
	if s.shortest >= 0 && 2*p.timeOf(s.others[s.shortest]) <= p.timeOf(s.head) {
		s.part = p.cost.tokensWithin(p.load, s.others[s.shortest].start, most-s.wholeTokens, decode+left)
	}
	if s.part == 0 {
		s.shortest = -1
	}
	s.first = min(s.head.rest, max(total-s.wholeTokens-s.part, s.sure))
	s.budget = max(total, s.sure+s.wholeTokens+s.part)
	return s
}

// even takes back what makes the step's rows more than a multiple of the device's unit: it
// would cost as much as a whole one. It takes nothing if no more are wanted, or if a prompt
// would not end that otherwise does, or the oldest get less than it is sure of.
func (p *planner) even(s *shares) {
	least := s.sure
	if s.first == s.head.rest {
		least = s.first
	}
	least += s.wholeTokens + s.ending()
	unit, rows := p.cfg.ChunkUnit, p.plan.DecodeRows+s.budget
	if unit == 0 || s.wanted <= s.budget || rows < evenFrom*unit || s.budget-rows%unit < least {
		return
	}
	out := rows % unit
	s.budget -= out
	if s.first < s.head.rest {
		fewer := min(out, s.first-s.sure)
		s.first, out = s.first-fewer, out-fewer
	}
	s.part = max(0, s.part-out)
}

// ending returns the tokens of the others that end if they get, one after another, what is
// left over.
func (s *shares) ending() (tokens int) {
	over := s.budget - s.first - s.wholeTokens - s.part
	for i := range s.others {
		if i == s.shortest {
			continue
		}
		if tokens+s.others[i].rest > over {
			break
		}
		tokens += s.others[i].rest
	}
	return tokens
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

// maxLate bounds what is left off a chunk because steps are late at times, as 1 over its part of
// the chunk: a quarter.
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
