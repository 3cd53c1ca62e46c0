package sampling

import (
	"math"

	"waybill/kernels"
)

// State is what sampling remembers of one sequence. It lives as long as the
// sequence, through preemptions too, and belongs to whoever samples it.
type State struct {
	numOutput int // tokens appended; the next draw is this number of the sequence's seed
	// Mask, if not nil, has a bit set for each token that may come next. The
	// owner sets it before each step: structured output prepares it elsewhere.
	Mask []uint64

	// seen lists the tokens that penalties fall on, at finds them. Both stay
	// empty without penalties. A list because it is walked at every token; a
	// dense count per vocabulary entry would be 600 KB a sequence.
	seen []kernels.Seen
	at   map[int32]int32
}

// NewState returns the state of a sequence with this prompt and no output.
func NewState(p *Params, prompt []int32) *State {
	s := &State{}
	if !p.penalized {
		return s
	}
	s.at = make(map[int32]int32)
	// The other two penalties look at the output alone.
	if p.o.RepetitionPenalty != 1 {
		for _, id := range prompt {
			s.find(id)
		}
	}
	return s
}

// Append counts an output token. It is called once for each token that the
// sequence keeps, in order.
func (s *State) Append(id int32) {
	s.numOutput++
	if s.at != nil {
		s.seen[s.find(id)].Count++
	}
}

// find returns the place of id in seen, added if new.
func (s *State) find(id int32) int32 {
	i, ok := s.at[id]
	if !ok {
		i = int32(len(s.seen))
		s.seen = append(s.seen, kernels.Seen{ID: id})
		s.at[id] = i
	}
	return i
}

// banned is the logit of a token that cannot be chosen.
var banned = float32(math.Inf(-1))

// process applies to row what can change the best token.
func (p *Params) process(row []float32, s *State) {
	if p.allowed != nil {
		applyMask(row, p.allowed)
	}
	if s.Mask != nil {
		applyMask(row, s.Mask)
	}
	if s.numOutput < p.o.MinTokens {
		for _, id := range p.o.StopIDs {
			row[id] = banned
		}
	}
	for _, b := range p.o.LogitBias {
		row[b.ID] += b.Value
	}
	if p.penalized {
		p.penalize(row, s)
	}
}

// applyMask bans the tokens whose bit is not set. Words that allow all or
// nothing are the usual case.
func applyMask(row []float32, mask []uint64) {
	for at := 0; at < len(row); at += 64 {
		bits := uint64(0)
		if at/64 < len(mask) {
			bits = mask[at/64]
		}
		if bits == math.MaxUint64 {
			continue
		}
		part := row[at:min(at+64, len(row))]
		for i := range part {
			if bits>>i&1 == 0 {
				part[i] = banned
			}
		}
	}
}

// penalize applies repetition over prompt and output, then frequency and
// presence over the output. What would be infinite is the largest number instead: a
// token that may be chosen must not look like one that is banned.
func (p *Params) penalize(row []float32, s *State) {
	repetition := float32(p.o.RepetitionPenalty)
	frequency, presence := float32(p.o.FrequencyPenalty), float32(p.o.PresencePenalty)
	for _, t := range s.seen {
		if int(t.ID) >= len(row) {
			continue // a prompt may hold ids that the head has no row for
		}
		x := row[t.ID]
		if x == banned {
			continue
		}
		if x > 0 {
			x /= repetition
		} else {
			x *= repetition
		}
		if t.Count > 0 {
			x -= frequency*float32(t.Count) + presence
		}
		row[t.ID] = min(max(x, -math.MaxFloat32), math.MaxFloat32)
	}
}
