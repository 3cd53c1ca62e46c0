package model

import (
	"fmt"
	"math"

	"waybill/kernels"
)

// llama is the decoder of Llama 2 and 3, Mistral (a sliding window in every
// layer) and SmolLM2:
//
//	tokens ─ embed ─┬─────────────────┬─► + ─┬──────────────┬─► + ─ … ─ norm ─ head ─► logits
//	                └ norm ─ attention┘      └ norm ─ swiglu┘
//	                ╰────────────────── × num_hidden_layers ──╯
//
// Attention is causal with grouped queries and rotary positions.
type llama struct {
	embed, head kernels.Weight // [vocabulary, hidden]; one and the same if tied
	norm        kernels.Buffer // [hidden]
	layers      []llamaLayer
}

type llamaLayer struct {
	attentionNorm kernels.Buffer // [hidden]
	qkv           kernels.Weight // [(heads + 2 kv heads) * head dim, hidden]
	attention     kernels.QKV
	output        kernels.Weight // [hidden, heads * head dim]
	mlpNorm       kernels.Buffer // [hidden]
	gateUp        kernels.Weight // [2 * intermediate, hidden], gate above up
	down          kernels.Weight // [hidden, intermediate]
}

func loadLlama(l *loader) decoder {
	c := l.cfg
	m := &llama{embed: l.embedding()}
	invFreq := l.invFreq()
	for i := range c.NumLayers {
		p := fmt.Sprintf("model.layers.%d.", i)
		m.layers = append(m.layers, llamaLayer{
			attentionNorm: l.vector(vectorPart{p + "input_layernorm.weight", c.HiddenSize}),
			qkv: l.pack(
				l.rotary(p+"self_attn.q_proj.weight", c.NumHeads, c.HeadDim, c.HiddenSize),
				l.rotary(p+"self_attn.k_proj.weight", c.NumKVHeads, c.HeadDim, c.HiddenSize),
				l.matrix(p+"self_attn.v_proj.weight", c.NumKVHeads*c.HeadDim, c.HiddenSize)),
			attention: c.attention(i, invFreq),
			output:    l.pack(l.matrix(p+"self_attn.o_proj.weight", c.HiddenSize, c.NumHeads*c.HeadDim)),
			mlpNorm:   l.vector(vectorPart{p + "post_attention_layernorm.weight", c.HiddenSize}),
			gateUp:    l.gateUp(p),
			down:      l.pack(l.matrix(p+"mlp.down_proj.weight", c.HiddenSize, c.IntermediateSize)),
		})
	}
	m.norm = l.vector(vectorPart{"model.norm.weight", c.HiddenSize})
	m.head = l.head(m.embed)
	return m
}

func (m *llama) forward(p *pass) {
	p.embed(m.embed)
	for i := range m.layers {
		l := &m.layers[i]
		p.addNorm(l.attentionNorm)
		p.project(l.qkv, nil)
		p.attend(l.attention) // after the last layer's only wanted rows go on
		p.output(l.output)
		p.addNorm(l.mlpNorm)
		p.swiglu(l.gateUp, l.down)
	}
	p.addNorm(m.norm)
	p.head(m.head)
}

// attention returns what all architectures' attention has in common.
func (c *Config) attention(layer int, invFreq kernels.Buffer) kernels.QKV {
	return kernels.QKV{
		Layer:      layer,
		NumHeads:   c.NumHeads,
		NumKVHeads: c.NumKVHeads,
		HeadDim:    c.HeadDim,
		NormEps:    float32(c.RMSNormEps),
		InvFreq:    invFreq,
		Scale:      float32(1 / math.Sqrt(float64(c.HeadDim))),
		Window:     c.Window(layer),
	}
}

func (l *loader) embedding() kernels.Weight {
	return l.pack(l.matrix("model.embed_tokens.weight", l.cfg.VocabSize, l.cfg.HiddenSize))
}

func (l *loader) gateUp(prefix string) kernels.Weight {
	return l.pack(
		l.matrix(prefix+"mlp.gate_proj.weight", l.cfg.IntermediateSize, l.cfg.HiddenSize),
		l.matrix(prefix+"mlp.up_proj.weight", l.cfg.IntermediateSize, l.cfg.HiddenSize))
}

// head returns the output projection, which may be the embedding itself.
func (l *loader) head(embed kernels.Weight) kernels.Weight {
	if l.cfg.TieWordEmbeddings {
		return embed
	}
	return l.pack(l.matrix("lm_head.weight", l.cfg.VocabSize, l.cfg.HiddenSize))
}
