package model

import (
	"fmt"

	"waybill/kernels"
)

// qwen3 is the decoder of the dense Qwen3 models: llama's diagram, with an
// RMSNorm over each head of q and k before the rotation, and heads whose width
// does not follow from the hidden size.
type qwen3 struct {
	embed, head kernels.Weight // [vocabulary, hidden]; one and the same if tied
	norm        kernels.Buffer // [hidden]
	layers      []qwen3Layer
}

type qwen3Layer struct {
	attentionNorm kernels.Buffer // [hidden]
	qkv           kernels.Weight // [(heads + 2 kv heads) * head dim, hidden]
	attention     kernels.QKV    // with q's and k's norm
	output        kernels.Weight // [hidden, heads * head dim]
	mlpNorm       kernels.Buffer // [hidden]
	gateUp        kernels.Weight // [2 * intermediate, hidden], gate above up
	down          kernels.Weight // [hidden, intermediate]
}

func loadQwen3(l *loader) decoder {
	c := l.cfg
	m := &qwen3{embed: l.embedding()}
	invFreq := l.invFreq()
	for i := range c.NumLayers {
		p := fmt.Sprintf("model.layers.%d.", i)
		attention := c.attention(i, invFreq)
		// One weight for all heads of a layer: the norm is within each head.
		attention.QNorm = l.vector(vectorPart{p + "self_attn.q_norm.weight", c.HeadDim})
		attention.KNorm = l.vector(vectorPart{p + "self_attn.k_norm.weight", c.HeadDim})
		m.layers = append(m.layers, qwen3Layer{
			attentionNorm: l.vector(vectorPart{p + "input_layernorm.weight", c.HiddenSize}),
			qkv: l.pack(
				l.rotary(p+"self_attn.q_proj.weight", c.NumHeads, c.HeadDim, c.HiddenSize),
				l.rotary(p+"self_attn.k_proj.weight", c.NumKVHeads, c.HeadDim, c.HiddenSize),
				l.matrix(p+"self_attn.v_proj.weight", c.NumKVHeads*c.HeadDim, c.HiddenSize)),
			attention: attention,
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

func (m *qwen3) forward(p *pass) {
	p.embed(m.embed)
	for i := range m.layers {
		l := &m.layers[i]
		p.addNorm(l.attentionNorm)
		p.project(l.qkv, nil)
		p.attend(l.attention)
		p.output(l.output)
		p.addNorm(l.mlpNorm)
		p.swiglu(l.gateUp, l.down)
	}
	p.addNorm(m.norm)
	p.head(m.head)
}
