package model

import (
	"fmt"

	"waybill/model/gguf"
)

// ggufArchitectures are the values of general.architecture that are computed.
// Mistral files call themselves llama.
var ggufArchitectures = map[string]bool{"llama": true, "qwen2": true, "qwen3": true}

// parseGGUFConfig reads a file's metadata, and the shapes that metadata leaves
// out. A rope_freqs tensor is no business of it: see loader.invFreq.
func parseGGUFConfig(f *gguf.File) (Config, error) {
	name, err := f.Metadata.Str("general.architecture", "")
	if err != nil {
		return Config{}, err
	}
	if !ggufArchitectures[name] {
		return Config{}, fmt.Errorf("architecture %q is not supported, expected one of llama, qwen2, qwen3", name)
	}
	if n, err := f.Metadata.Int("split.count", 1); err != nil || n > 1 {
		return Config{}, fmt.Errorf("file is one of %d parts; merge them into one file first", n)
	}
	g := ggufKeys{m: f.Metadata, arch: name}
	c := Config{
		Architecture:          name,
		HiddenSize:            g.int("embedding_length", 0),
		NumLayers:             g.int("block_count", 0),
		NumHeads:              g.int("attention.head_count", 0),
		IntermediateSize:      g.int("feed_forward_length", 0),
		RMSNormEps:            g.float("attention.layer_norm_rms_epsilon", 0),
		RopeTheta:             g.float("rope.freq_base", 10000),
		SlidingWindow:         g.int("attention.sliding_window", 0),
		MaxPositionEmbeddings: g.int("context_length", 0),
		BOSTokenID:            -1,
	}
	// Absent in files from before grouped queries.
	c.NumKVHeads = g.int("attention.head_count_kv", c.NumHeads)
	if c.NumHeads > 0 {
		c.HeadDim = c.HiddenSize / c.NumHeads
	}
	c.HeadDim = g.int("attention.key_length", c.HeadDim)
	g.refuse(&c)
	g.rope(&c)
	if g.err != nil {
		return Config{}, g.err
	}
	// The vocabulary's size has a key of its own only in some files, and tying has
	// none in any: a head that is not there is the embedding.
	embedding, ok := f.Tensor("token_embd.weight")
	if !ok {
		return Config{}, fmt.Errorf("tensor token_embd.weight is missing")
	}
	c.VocabSize = embedding.Shape[0]
	_, untied := f.Tensor("output.weight")
	c.TieWordEmbeddings = !untied
	return c, c.validate()
}

// ggufKeys reads "<arch>.<key>" and keeps the first error.
type ggufKeys struct {
	m    gguf.Metadata
	arch string
	err  error
}

func (g *ggufKeys) int(key string, absent int) int {
	n, err := g.m.Int(g.arch+"."+key, absent)
	g.keep(err)
	return n
}

func (g *ggufKeys) float(key string, absent float64) float64 {
	f, err := g.m.Float(g.arch+"."+key, absent)
	g.keep(err)
	return f
}

func (g *ggufKeys) keep(err error) {
	if g.err == nil {
		g.err = err
	}
}

// refuse names what a file of a known architecture may ask for and does not get.
func (g *ggufKeys) refuse(c *Config) {
	expect := func(key string, absent, want int) {
		if n := g.int(key, absent); n != want {
			g.keep(fmt.Errorf("%s.%s is %d, expected %d", g.arch, key, n, want))
		}
	}
	// A mixture of experts keeps its architecture's name and says it here only.
	expect("expert_count", 0, 0)
	expect("attention.value_length", c.HeadDim, c.HeadDim)
	expect("rope.dimension_count", c.HeadDim, c.HeadDim)
	// Factors that Granite's files bring along under llama's name.
	for _, key := range []string{"attention.scale", "embedding_scale", "residual_scale", "logit_scale"} {
		if _, ok := g.m[g.arch+"."+key]; ok {
			g.keep(fmt.Errorf("%s.%s is not supported", g.arch, key))
		}
	}
}

// rope reads the scaling. The llama3 rule has no key of its own: converters write
// its outcome as the tensor rope_freqs.weight.
func (g *ggufKeys) rope(c *Config) {
	t, err := g.m.Str(g.arch+".rope.scaling.type", "none")
	g.keep(err)
	switch factor := g.float("rope.scaling.factor", 1); t {
	case "none":
	case "linear":
		c.RopeScaling = RopeScaling{Type: "linear", Factor: factor}
	default:
		g.keep(fmt.Errorf("%s.rope.scaling.type %q is not supported, expected none or linear", g.arch, t))
	}
	// The key that files wrote before rope.scaling existed.
	if s := g.float("rope.scale_linear", 1); s != 1 && c.RopeScaling.Type == "" {
		c.RopeScaling = RopeScaling{Type: "linear", Factor: s}
	}
}
