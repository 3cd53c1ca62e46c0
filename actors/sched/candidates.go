package sched

// maxLookahead bounds how many waiting sequences one proposal examines, so that
// an event costs the same with 10 and with 10,000 waiting.
const maxLookahead = 32

// candidate is a sequence that wants prefill.
type candidate struct {
	s       *seq
	waiting bool
	hits    []blockIdx // prefix found, if waiting
	start   int
	rest    int   // tokens still to compute
	over    SeqID // a sequence that waits for blocks and is overtaken, or 0
}

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
