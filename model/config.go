// Package model says what is computed: a model's configuration, weights and
// forward pass, one file per architecture. How it is computed is the business of
// a kernels.Backend.
package model

import (
	"fmt"
	"math"
	"slices"
)

// Config describes a decoder. Fields are named as in a Hugging Face config.json,
// whatever the model was read from.
type Config struct {
	// Architecture is the decoder that computes it: "llama", "qwen2" or "qwen3".
	Architecture string
	// HiddenSize is the width of the residual stream.
	HiddenSize int
	// NumLayers is the number of decoder layers.
	NumLayers int
	// NumHeads and NumKVHeads are the attention's query and key/value heads.
	NumHeads, NumKVHeads int
	// HeadDim is the width of a head; it need not be HiddenSize / NumHeads.
	HeadDim int
	// IntermediateSize is the width of the gated MLP.
	IntermediateSize int
	// VocabSize is the number of rows of the embedding, at least the tokenizer's.
	VocabSize int
	// RMSNormEps is the epsilon of every RMSNorm.
	RMSNormEps float64
	// RopeTheta is the base of the rotary frequencies.
	RopeTheta float64
	// RopeScaling stretches them for long contexts.
	RopeScaling RopeScaling
	// SlidingWindow is the number of positions that a windowed layer sees, the
	// token itself included; 0 if no layer is windowed.
	SlidingWindow int
	// FullAttention names the layers that see everything although SlidingWindow
	// is set, [NumLayers]; nil means none.
	FullAttention []bool
	// TieWordEmbeddings tells that the head's weight is the embedding's.
	TieWordEmbeddings bool
	// MaxPositionEmbeddings is the longest context the model was made for.
	MaxPositionEmbeddings int
	// BOSTokenID begins a text; -1 if the model has none.
	BOSTokenID int32
	// EOSTokenIDs end a generation, the config's own first, then those of
	// generation_config.json, or of a GGUF vocabulary.
	EOSTokenIDs []int32
}

// RopeScaling is a change of the rotary frequencies. The zero value is none.
type RopeScaling struct {
	// Type is "default", "linear" or "llama3".
	Type string
	// Factor divides the frequencies (llama3: only the low ones).
	Factor float64
	// LowFreqFactor and HighFreqFactor bound llama3's transition.
	LowFreqFactor, HighFreqFactor float64
	// OriginalMaxPositionEmbeddings is the context llama3 was trained with.
	OriginalMaxPositionEmbeddings int
}

// Limits of a configuration. They are several times the largest models published
// and keep products of two or three of them within 64 bits.
const (
	maxLayers       = 1024
	maxHiddenSize   = 1 << 17
	maxHeads        = 1024
	maxHeadDim      = 1024
	maxIntermediate = 1 << 20
	maxVocabSize    = 1 << 22
	maxPositions    = 1 << 26
	maxEOSTokens    = 64
)

// Window returns how many positions layer sees, the token itself included; 0
// means all.
func (c *Config) Window(layer int) int {
	if c.FullAttention != nil && c.FullAttention[layer] {
		return 0
	}
	return c.SlidingWindow
}

// validate checks every size, so that what is computed from them later can
// neither overflow nor divide by zero.
func (c *Config) validate() error {
	sizes := []struct {
		name     string
		n, limit int
	}{
		{"hidden_size", c.HiddenSize, maxHiddenSize},
		{"num_hidden_layers", c.NumLayers, maxLayers},
		{"num_attention_heads", c.NumHeads, maxHeads},
		{"num_key_value_heads", c.NumKVHeads, maxHeads},
		{"head_dim", c.HeadDim, maxHeadDim},
		{"intermediate_size", c.IntermediateSize, maxIntermediate},
		{"vocab_size", c.VocabSize, maxVocabSize},
		{"max_position_embeddings", c.MaxPositionEmbeddings, maxPositions},
	}
	for _, s := range sizes {
		if s.n < 1 || s.n > s.limit {
			return fmt.Errorf("%s is %d, expected 1 to %d", s.name, s.n, s.limit)
		}
	}
	if c.NumHeads%c.NumKVHeads != 0 {
		return fmt.Errorf("num_attention_heads %d is not a multiple of num_key_value_heads %d", c.NumHeads, c.NumKVHeads)
	}
	if c.HeadDim%2 != 0 {
		return fmt.Errorf("head_dim %d is odd, rotary embedding needs pairs", c.HeadDim)
	}
	if !(c.RMSNormEps > 0 && c.RMSNormEps <= 0.1) {
		return fmt.Errorf("rms_norm_eps is %g, expected more than 0 and at most 0.1", c.RMSNormEps)
	}
	if !(c.RopeTheta >= 1 && c.RopeTheta <= math.MaxFloat32) {
		return fmt.Errorf("rope_theta is %g, expected a finite number from 1", c.RopeTheta)
	}
	if c.SlidingWindow < 0 || c.SlidingWindow > maxPositions {
		return fmt.Errorf("sliding_window is %d, expected 0 to %d", c.SlidingWindow, maxPositions)
	}
	if c.FullAttention != nil && len(c.FullAttention) != c.NumLayers {
		return fmt.Errorf("layer_types has %d entries, expected %d", len(c.FullAttention), c.NumLayers)
	}
	if err := c.checkEOS(); err != nil {
		return err
	}
	return c.RopeScaling.validate()
}

func (c *Config) checkEOS() error {
	if len(c.EOSTokenIDs) > maxEOSTokens {
		return fmt.Errorf("eos_token_id has more than %d entries", maxEOSTokens)
	}
	return nil
}

func (r *RopeScaling) validate() error {
	switch r.Type {
	case "", "default":
		return nil
	case "linear", "llama3":
	default:
		return fmt.Errorf("rope scaling type %q is not supported, expected default, linear or llama3", r.Type)
	}
	if !(r.Factor > 0 && r.Factor <= math.MaxFloat32) {
		return fmt.Errorf("rope scaling factor is %g, expected a positive number", r.Factor)
	}
	if r.Type == "linear" {
		return nil
	}
	if !(r.LowFreqFactor > 0 && r.LowFreqFactor < r.HighFreqFactor && r.HighFreqFactor <= math.MaxFloat32) {
		return fmt.Errorf("rope scaling low_freq_factor %g and high_freq_factor %g, expected 0 < low < high",
			r.LowFreqFactor, r.HighFreqFactor)
	}
	if n := r.OriginalMaxPositionEmbeddings; n < 1 || n > maxPositions {
		return fmt.Errorf("rope scaling original_max_position_embeddings is %d, expected 1 to %d", n, maxPositions)
	}
	return nil
}

// addEOS appends the ids that are not there yet. Ids outside of the vocabulary
// can never come up, so they are left out, and whoever uses the list may index
// logits with it. One more than the limit is kept, for validate to see.
func (c *Config) addEOS(ids []int32) {
	for _, id := range ids {
		if len(c.EOSTokenIDs) > maxEOSTokens {
			return
		}
		if id >= 0 && int(id) < c.VocabSize && !slices.Contains(c.EOSTokenIDs, id) {
			c.EOSTokenIDs = append(c.EOSTokenIDs, id)
		}
	}
}
