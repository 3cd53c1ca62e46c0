package model

import "math"

// invFreq returns the rotary frequencies [headDim/2] in radians per position,
// scaled as the config says. They are computed in float64 and rounded once.
//
// Source: Su et al., RoFormer, section 3.2; the llama3 rule is from Meta's
// llama-models, apply_scaling.
func (c *Config) invFreq() []float32 {
	freqs := make([]float32, c.HeadDim/2)
	for i := range freqs {
		f := math.Pow(c.RopeTheta, -float64(2*i)/float64(c.HeadDim))
		freqs[i] = float32(c.RopeScaling.apply(f))
	}
	return freqs
}

func (r *RopeScaling) apply(freq float64) float64 {
	switch r.Type {
	case "linear":
		return freq / r.Factor
	case "llama3":
		// turns is how often this frequency goes round within the original
		// context: fast ones stay, slow ones are stretched, and between the two
		// bounds the change is gradual.
		turns := float64(r.OriginalMaxPositionEmbeddings) * freq / (2 * math.Pi)
		keep := (turns - r.LowFreqFactor) / (r.HighFreqFactor - r.LowFreqFactor)
		keep = min(max(keep, 0), 1)
		return keep*freq + (1-keep)*freq/r.Factor
	}
	return freq
}
