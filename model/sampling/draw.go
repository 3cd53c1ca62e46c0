package sampling

import "waybill/kernels"

// Draw returns what a device must know to choose the next token as Sample does, from
// the same draw of the seed. It is not ok for a mask or allowed ids, which a device is
// not told: then Sample is to choose. The slices are the sequence's own, to be read
// before the next Append. pending tokens will have been appended to s by then: 0, or, if
// DependsOnOutput is false, more.
func (p *Params) Draw(s *State, pending int) (d kernels.Draw, ok bool) {
	output := s.numOutput + pending
	if p.allowed != nil || s.Mask != nil || p.twice {
		return kernels.Draw{}, false
	}
	d = kernels.Draw{
		On: true, TopK: p.topK, TopP: p.o.TopP, MinP: p.minP, Bias: p.biases, Logprobs: p.o.Logprobs,
		Repetition: float32(p.o.RepetitionPenalty), Frequency: float32(p.o.FrequencyPenalty), Presence: float32(p.o.PresencePenalty),
	}
	if !p.Greedy() {
		d.Scale, d.Uniform = 1/p.temperature, uniform(p.o.Seed, output)
	}
	if p.penalized {
		d.Seen = s.seen
	}
	if output < p.o.MinTokens {
		d.Banned = p.stops
	}
	return d, true
}

// DependsOnOutput reports whether a draw depends on which tokens precede it, not only on
// how many do.
func (p *Params) DependsOnOutput() bool { return p.penalized }

// deviceBiases converts biases and reports whether a token has two, whose order of
// addition matters.
func deviceBiases(biases []Bias) (out []kernels.Bias, twice bool) {
	ids := make(map[int32]bool, len(biases))
	for _, b := range biases {
		twice = twice || ids[b.ID]
		ids[b.ID] = true
		out = append(out, kernels.Bias(b))
	}
	return out, twice
}
