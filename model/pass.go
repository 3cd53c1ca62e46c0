package model

import "waybill/kernels"

// pass carries one step through a decoder: the verbs of the architectures'
// diagrams, over the scratch buffers. It belongs to a Scratch and is reused.
//
// The residual stream is kept apart from the sublayers' output, so that adding
// and normalising is one op.
type pass struct {
	kernels.Backend
	*Scratch
	cfg   *Config
	batch *kernels.Batch
	cache kernels.Cache
	// rows is the number of rows that go on: all tokens, and from the last
	// layer's attention on only those whose logits are wanted.
	rows int
	// residual and attended are the buffers in use; see keepLogits.
	residual, attended kernels.Buffer
	// pending tells that s.out is still to be added to the residual.
	pending bool
	// onNorm, if set, sees the residual and its norm [rows, hidden] after each
	// addNorm. Tests compare them with the traces of a reference.
	onNorm func(residual, normed kernels.Buffer, rows int)
}

// begin prepares for the tokens of b.
func (p *pass) begin(b *kernels.Batch, cache kernels.Cache) {
	p.batch, p.cache = b, cache
	p.rows, p.pending = len(b.Tokens), false
	p.residual, p.attended = p.hidden, p.heads
}

// embed starts the residual stream with the tokens' embeddings.
func (p *pass) embed(w kernels.Weight) { p.Embed(p.residual, w) }

// addNorm adds the last sublayer's output to the residual stream and leaves its
// norm in normed.
func (p *pass) addNorm(w kernels.Buffer) {
	if p.rows == 0 {
		return
	}
	eps := float32(p.cfg.RMSNormEps)
	if p.pending {
		p.AddRMSNorm(p.normed, p.residual, p.out, w, p.rows, p.cfg.HiddenSize, eps)
	} else {
		p.RMSNorm(p.normed, p.residual, w, p.rows, p.cfg.HiddenSize, eps)
	}
	p.pending = false
	if p.onNorm != nil {
		p.onNorm(p.residual, p.normed, p.rows)
	}
}

// project computes q, k and v of all heads from normed.
func (p *pass) project(w kernels.Weight, bias kernels.Buffer) {
	p.MatMul(p.qkv, p.normed, w, bias, p.rows)
}

// attend rotates q and k, stores k and v, and attends to what is stored. After
// the last layer's keys and values nobody reads the rows whose logits are not
// wanted: they end here, and a chunk without logits ends whole.
func (p *pass) attend(a kernels.QKV) {
	p.RopeAndCache(p.qkv, p.cache, a)
	last := a.Layer == p.cfg.NumLayers-1
	if last && len(p.batch.Logits) == 0 {
		p.rows = 0
		return
	}
	p.Attention(p.attended, p.qkv, p.cache, a)
	if last {
		p.keepLogits()
	}
}

// keepLogits goes on with the rows in Batch.Logits only. A token's row does not
// depend on the others, so the logits are the same bits.
func (p *pass) keepLogits() {
	p.Gather(p.lastHeads, p.attended, p.cfg.NumHeads*p.cfg.HeadDim)
	p.Gather(p.lastHidden, p.residual, p.cfg.HiddenSize)
	p.attended, p.residual = p.lastHeads, p.lastHidden
	p.rows = len(p.batch.Logits)
}

// output projects the attended heads back to the residual stream's width.
func (p *pass) output(w kernels.Weight) {
	if p.rows == 0 {
		return
	}
	p.MatMul(p.out, p.attended, w, nil, p.rows)
	p.pending = true
}

// swiglu is the gated MLP: down(silu(gate(x)) * up(x)).
func (p *pass) swiglu(gateUp, down kernels.Weight) {
	if p.rows == 0 {
		return
	}
	p.MatMul(p.gateUp, p.normed, gateUp, nil, p.rows)
	p.SiLUMul(p.inner, p.gateUp, p.rows, p.cfg.IntermediateSize)
	p.MatMul(p.out, p.inner, down, nil, p.rows)
	p.pending = true
}

// head computes the logits of the rows that are left.
func (p *pass) head(w kernels.Weight) {
	if p.rows == 0 {
		return
	}
	p.MatMul(p.logits, p.normed, w, nil, p.rows)
}
