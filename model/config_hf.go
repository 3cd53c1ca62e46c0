package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// hfConfig is the part of config.json that says what is computed. Pointers tell
// an absent or null field from a zero. Two layouts exist: up to transformers 4
// rope_theta and rope_scaling are at the top, from 5 on both are in
// rope_parameters.
type hfConfig struct {
	Architectures         []string        `json:"architectures"`
	ModelType             string          `json:"model_type"`
	HiddenSize            int             `json:"hidden_size"`
	NumHiddenLayers       int             `json:"num_hidden_layers"`
	NumAttentionHeads     int             `json:"num_attention_heads"`
	NumKeyValueHeads      *int            `json:"num_key_value_heads"`
	HeadDim               *int            `json:"head_dim"`
	IntermediateSize      int             `json:"intermediate_size"`
	VocabSize             int             `json:"vocab_size"`
	HiddenAct             *string         `json:"hidden_act"`
	RMSNormEps            *float64        `json:"rms_norm_eps"`
	RopeTheta             *float64        `json:"rope_theta"`
	RopeScaling           *hfRope         `json:"rope_scaling"`
	RopeParameters        *hfRope         `json:"rope_parameters"`
	PartialRotaryFactor   *float64        `json:"partial_rotary_factor"`
	SlidingWindow         json.RawMessage `json:"sliding_window"`
	UseSlidingWindow      bool            `json:"use_sliding_window"`
	MaxWindowLayers       *int            `json:"max_window_layers"`
	LayerTypes            []string        `json:"layer_types"`
	TieWordEmbeddings     bool            `json:"tie_word_embeddings"`
	MaxPositionEmbeddings int             `json:"max_position_embeddings"`
	AttentionBias         bool            `json:"attention_bias"`
	MLPBias               bool            `json:"mlp_bias"`
	BOSTokenID            *int32          `json:"bos_token_id"`
	EOSTokenID            TokenIDs        `json:"eos_token_id"`
	QuantizationConfig    json.RawMessage `json:"quantization_config"`
}

// hfRope is rope_scaling, or rope_parameters with the base in it.
type hfRope struct {
	RopeTheta                     *float64 `json:"rope_theta"`
	RopeType                      string   `json:"rope_type"`
	Type                          string   `json:"type"` // rope_type's older name
	Factor                        float64  `json:"factor"`
	LowFreqFactor                 float64  `json:"low_freq_factor"`
	HighFreqFactor                float64  `json:"high_freq_factor"`
	OriginalMaxPositionEmbeddings int      `json:"original_max_position_embeddings"`
	PartialRotaryFactor           *float64 `json:"partial_rotary_factor"`
}

// TokenIDs is one token id or a list of them, as JSON has it.
type TokenIDs []int32

// UnmarshalJSON accepts a number, a list of numbers or null.
func (t *TokenIDs) UnmarshalJSON(data []byte) error {
	if data = bytes.TrimSpace(data); len(data) > 0 && data[0] == '[' {
		return json.Unmarshal(data, (*[]int32)(t))
	}
	var id *int32
	if err := json.Unmarshal(data, &id); err != nil {
		return err
	}
	if id != nil {
		*t = TokenIDs{*id}
	}
	return nil
}

// hfClasses maps the class names of config.json to our architectures.
var hfClasses = map[string]struct{ architecture, modelType string }{
	"LlamaForCausalLM":   {"llama", "llama"},
	"MistralForCausalLM": {"llama", "mistral"},
	"Qwen2ForCausalLM":   {"qwen2", "qwen2"},
	"Qwen3ForCausalLM":   {"qwen3", "qwen3"},
}

// parseHFConfig reads a config.json.
func parseHFConfig(data []byte) (Config, error) {
	var h hfConfig
	if err := json.Unmarshal(data, &h); err != nil {
		return Config{}, err
	}
	// The class first: the sizes of another architecture mean something else.
	architecture, modelType, err := h.class()
	if err != nil {
		return Config{}, err
	}
	if err := h.refuse(); err != nil {
		return Config{}, err
	}
	c := Config{
		Architecture:          architecture,
		HiddenSize:            h.HiddenSize,
		NumLayers:             h.NumHiddenLayers,
		NumHeads:              h.NumAttentionHeads,
		IntermediateSize:      h.IntermediateSize,
		VocabSize:             h.VocabSize,
		RMSNormEps:            or(h.RMSNormEps, 1e-6),
		TieWordEmbeddings:     h.TieWordEmbeddings,
		MaxPositionEmbeddings: h.MaxPositionEmbeddings,
		BOSTokenID:            or(h.BOSTokenID, -1),
	}
	c.addEOS(h.EOSTokenID)
	if err := h.heads(&c, modelType); err != nil {
		return Config{}, err
	}
	h.rope(&c)
	if err := h.windows(&c, modelType); err != nil {
		return Config{}, err
	}
	return c, c.validate()
}

// class finds the architecture by class name, or by model_type where a file
// names no class.
func (h *hfConfig) class() (architecture, modelType string, err error) {
	for class, a := range hfClasses {
		if len(h.Architectures) > 0 && h.Architectures[0] == class ||
			len(h.Architectures) == 0 && h.ModelType == a.modelType {
			return a.architecture, a.modelType, nil
		}
	}
	return "", "", fmt.Errorf("architecture %q (model_type %q) is not supported, expected one of "+
		"LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM",
		strings.Join(h.Architectures, " "), h.ModelType)
}

// refuse names the variants of the supported classes that are not computed.
func (h *hfConfig) refuse() error {
	if act := or(h.HiddenAct, "silu"); act != "silu" {
		return fmt.Errorf("hidden_act %q is not supported, expected silu", act)
	}
	if h.AttentionBias {
		return fmt.Errorf("attention_bias true is not supported")
	}
	if h.MLPBias {
		return fmt.Errorf("mlp_bias true is not supported")
	}
	// Phi and others rotate a part of each head; it sits with the other rotary
	// parameters in the newer layout.
	partial := or(h.PartialRotaryFactor, 1)
	if h.RopeParameters != nil {
		partial = or(h.RopeParameters.PartialRotaryFactor, partial)
	}
	if partial != 1 {
		return fmt.Errorf("partial_rotary_factor %g is not supported, expected 1", partial)
	}
	if q := h.QuantizationConfig; len(q) > 0 && string(q) != "null" {
		var method struct {
			QuantMethod string `json:"quant_method"`
		}
		// The method only improves the text: without it the answer is the same.
		_ = json.Unmarshal(q, &method)
		return fmt.Errorf("quantization_config (quant_method %q) is not supported in safetensors; use a GGUF file", method.QuantMethod)
	}
	return nil
}

// heads fills in what config classes leave to their defaults: Llama's omits
// num_key_value_heads before grouped queries came up, Qwen3's head_dim is 128.
func (h *hfConfig) heads(c *Config, modelType string) error {
	switch {
	case h.NumKeyValueHeads != nil:
		c.NumKVHeads = *h.NumKeyValueHeads
	case modelType == "llama":
		c.NumKVHeads = c.NumHeads
	default:
		return fmt.Errorf("num_key_value_heads is missing")
	}
	switch {
	case h.HeadDim != nil:
		c.HeadDim = *h.HeadDim
	case modelType == "qwen3":
		c.HeadDim = 128
	case c.NumHeads > 0 && c.HiddenSize%c.NumHeads == 0:
		c.HeadDim = c.HiddenSize / c.NumHeads
	default:
		return fmt.Errorf("head_dim is missing and hidden_size %d is not a multiple of num_attention_heads %d",
			c.HiddenSize, c.NumHeads)
	}
	return nil
}

// rope reads either layout; the newer one wins where a file has both.
func (h *hfConfig) rope(c *Config) {
	const defaultTheta = 10000
	c.RopeTheta = or(h.RopeTheta, defaultTheta)
	r := h.RopeScaling
	if h.RopeParameters != nil {
		r = h.RopeParameters
		c.RopeTheta = or(r.RopeTheta, c.RopeTheta)
	}
	if r == nil {
		return
	}
	c.RopeScaling = RopeScaling{
		Type:                          r.RopeType,
		Factor:                        r.Factor,
		LowFreqFactor:                 r.LowFreqFactor,
		HighFreqFactor:                r.HighFreqFactor,
		OriginalMaxPositionEmbeddings: r.OriginalMaxPositionEmbeddings,
	}
	if c.RopeScaling.Type == "" {
		c.RopeScaling.Type = r.Type
	}
}

// windows applies each class's rule for sliding windows. Llama has none and
// ignores the fields; Mistral's window holds in all layers; Qwen's only if
// switched on, and from layer max_window_layers on unless layer_types says where.
func (h *hfConfig) windows(c *Config, modelType string) error {
	const defaultWindow, defaultMaxWindowLayers = 4096, 28
	// An absent field is the class's default, a null is no window.
	var window *int
	if len(h.SlidingWindow) == 0 {
		window = new(int)
		*window = defaultWindow
	} else if err := json.Unmarshal(h.SlidingWindow, &window); err != nil {
		return fmt.Errorf("sliding_window: %w", err)
	}
	switch modelType {
	case "mistral":
		c.SlidingWindow = or(window, 0)
	case "qwen2", "qwen3":
		if h.UseSlidingWindow {
			c.SlidingWindow = or(window, 0)
		}
		if h.LayerTypes == nil {
			return h.windowsFrom(c, or(h.MaxWindowLayers, defaultMaxWindowLayers))
		}
		for i, t := range h.LayerTypes {
			if t != "full_attention" && t != "sliding_attention" {
				return fmt.Errorf("layer_types[%d] is %q, expected full_attention or sliding_attention", i, t)
			}
			if t == "sliding_attention" && c.SlidingWindow == 0 {
				return fmt.Errorf("layer_types[%d] is %q, but no sliding_window is in use", i, t)
			}
			c.FullAttention = append(c.FullAttention, t == "full_attention")
		}
		// Length and range are validated with the other sizes.
	}
	return nil
}

// windowsFrom gives all layers from firstWindowed on the window.
func (h *hfConfig) windowsFrom(c *Config, firstWindowed int) error {
	// Sizes are validated later, and the list below is as long as one of them.
	if c.SlidingWindow == 0 || c.NumLayers < 1 || c.NumLayers > maxLayers {
		return nil
	}
	c.FullAttention = make([]bool, c.NumLayers)
	for i := range c.FullAttention {
		c.FullAttention[i] = i < firstWindowed
	}
	return nil
}

// or returns what p points to, or absent.
func or[T any](p *T, absent T) T {
	if p == nil {
		return absent
	}
	return *p
}

// GenerationConfig holds the sampling defaults that a model's makers recommend
// (generation_config.json). Nil means that the file says nothing.
type GenerationConfig struct {
	Temperature       *float64 `json:"temperature"`
	TopP              *float64 `json:"top_p"`
	TopK              *int     `json:"top_k"`
	MinP              *float64 `json:"min_p"`
	RepetitionPenalty *float64 `json:"repetition_penalty"`
	MaxNewTokens      *int     `json:"max_new_tokens"`
	// EOSTokenIDs are also in Config.EOSTokenIDs.
	EOSTokenIDs TokenIDs `json:"eos_token_id"`
}

// parseGenerationConfig reads a generation_config.json.
func parseGenerationConfig(data []byte) (GenerationConfig, error) {
	var g GenerationConfig
	err := json.Unmarshal(data, &g)
	return g, err
}
