package model

import (
	"fmt"

	"waybill/kernels"
)

// qwen2 is the decoder of Qwen2 and Qwen2.5: llama's diagram, with a bias on the
// projections of q, k and v, and optionally a sliding window in the upper layers.
type qwen2 struct {
	embed, head kernels.Weight // [vocabulary, hidden]; one and the same if tied
	norm        kernels.Buffer // [hidden]
	layers      []qwen2Layer
}

type qwen2Layer struct {
	attentionNorm kernels.Buffer // [hidden]
	qkv           kernels.Weight // [(heads + 2 kv heads) * head dim, hidden]
	qkvBias       kernels.Buffer // [(heads + 2 kv heads) * head dim]
	attention     kernels.QKV
	output        kernels.Weight // [hidden, heads * head dim]
	mlpNorm       kernels.Buffer // [hidden]
	gateUp        kernels.Weight // [2 * intermediate, hidden], gate above up
	down          kernels.Weight // [hidden, intermediate]
}

func loadQwen2(l *loader) decoder {
	c := l.cfg
	m := &qwen2{embed: l.embedding()}
	invFreq := l.invFreq()
	for i := range c.NumLayers {
		p := fmt.Sprintf("model.layers.%d.", i)
		m.layers = append(m.layers, qwen2Layer{
			attentionNorm: l.vector(vectorPart{p + "input_layernorm.weight", c.HiddenSize}),
			qkv: l.pack(
				l.rotary(p+"self_attn.q_proj.weight", c.NumHeads, c.HeadDim, c.HiddenSize),
				l.rotary(p+"self_attn.k_proj.weight", c.NumKVHeads, c.HeadDim, c.HiddenSize),
				l.matrix(p+"self_attn.v_proj.weight", c.NumKVHeads*c.HeadDim, c.HiddenSize)),
			// One bias below the other, as the weights' rows are.
			qkvBias: l.vector(
				vectorPart{p + "self_attn.q_proj.bias", c.NumHeads * c.HeadDim},
				vectorPart{p + "self_attn.k_proj.bias", c.NumKVHeads * c.HeadDim},
				vectorPart{p + "self_attn.v_proj.bias", c.NumKVHeads * c.HeadDim}),
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

func (m *qwen2) forward(p *pass) {
	p.embed(m.embed)
	for i := range m.layers {
		l := &m.layers[i]
		p.addNorm(l.attentionNorm)
		p.project(l.qkv, l.qkvBias)
		p.attend(l.attention)
		p.output(l.output)
		p.addNorm(l.mlpNorm)
		p.swiglu(l.gateUp, l.down)
	}
	p.addNorm(m.norm)
	p.head(m.head)
}
