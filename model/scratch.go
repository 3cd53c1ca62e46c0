package model

import (
	"fmt"

	"waybill/kernels"
)

// Scratch is the device memory for the activations of one step. It is made once
// and belongs to the step's goroutine.
type Scratch struct {
	maxTokens, maxLogits int

	// Of all tokens of a step, [maxTokens, …].
	hidden, normed, out kernels.Buffer // hidden size
	qkv                 kernels.Buffer // (numHeads + 2 numKVHeads) * headDim
	heads               kernels.Buffer // numHeads * headDim
	gateUp, inner       kernels.Buffer // 2 * and 1 * intermediate size

	// Of the tokens whose logits are wanted, [maxLogits, …].
	lastHidden, lastHeads kernels.Buffer
	logits                kernels.Buffer // vocabulary

	pass pass
}

// NewScratch returns memory for steps of up to maxTokens tokens of which up to
// maxLogits have their logits computed.
func (m *Model) NewScratch(maxTokens, maxLogits int) (*Scratch, error) {
	if maxTokens < 1 || maxLogits < 1 {
		return nil, fmt.Errorf("model: scratch for %d tokens and %d logits, expected at least 1 of each", maxTokens, maxLogits)
	}
	c := &m.cfg
	s := &Scratch{maxTokens: maxTokens, maxLogits: maxLogits}
	s.pass = pass{Backend: m.backend, Scratch: s, cfg: c}
	heads := c.NumHeads * c.HeadDim
	// The last layer's rows come from maxLogits rows of lastHidden on, so the
	// buffers of its MLP must hold these as well.
	rows := max(maxTokens, maxLogits)
	floats, fused := m.backend.NewBuffer, m.backend.NewBuffer
	if b, ok := m.backend.(kernels.Stepper); ok {
		floats, fused = b.NewFloats, b.NewRows // wider than its activations
	}
	for _, b := range []struct {
		dst        *kernels.Buffer
		make       func(n int) (kernels.Buffer, error)
		rows, cols int
	}{
		{&s.hidden, floats, rows, c.HiddenSize},
		{&s.normed, m.backend.NewBuffer, rows, c.HiddenSize},
		{&s.out, m.backend.NewBuffer, rows, c.HiddenSize},
		{&s.qkv, fused, rows, heads + 2*c.NumKVHeads*c.HeadDim},
		{&s.heads, m.backend.NewBuffer, rows, heads},
		{&s.gateUp, m.backend.NewBuffer, rows, 2 * c.IntermediateSize},
		{&s.inner, m.backend.NewBuffer, rows, c.IntermediateSize},
		{&s.lastHidden, floats, maxLogits, c.HiddenSize},
		{&s.lastHeads, m.backend.NewBuffer, maxLogits, heads},
		{&s.logits, floats, maxLogits, c.VocabSize},
	} {
		var err error
		if *b.dst, err = b.make(b.rows * b.cols); err != nil {
			return nil, fmt.Errorf("model: scratch of %d rows of %d: %w", b.rows, b.cols, err)
		}
	}
	return s, nil
}

// Forward runs the ops of one step, between the backend's Begin(b) and End, and
// returns the logits of the tokens in b.Logits, [len(b.Logits), VocabSize], which
// are valid until the scratch is used again. Keys and values of all tokens are in
// the cache after it. It allocates nothing. A batch larger than the scratch is a
// bug.
func (m *Model) Forward(b *kernels.Batch, cache kernels.Cache, s *Scratch) kernels.Buffer {
	if n := len(b.Tokens); n < 1 || n > s.maxTokens {
		panic(fmt.Sprintf("BUG: model: step of %d tokens, scratch holds 1 to %d", n, s.maxTokens))
	}
	if n := len(b.Logits); n > s.maxLogits {
		panic(fmt.Sprintf("BUG: model: step with %d logits rows, scratch holds %d", n, s.maxLogits))
	}
	s.pass.begin(b, cache)
	m.decoder.forward(&s.pass)
	return s.logits
}

// Step is a whole step on the device: Begin, Forward, the logits read into
// logits [len(b.Logits) * VocabSize], End.
func (m *Model) Step(b *kernels.Batch, cache kernels.Cache, s *Scratch, logits []float32) error {
	m.backend.Begin(b)
	device := m.Forward(b, cache, s)
	if n := len(b.Logits) * m.cfg.VocabSize; n > 0 {
		m.backend.Read(logits[:n], device)
	}
	return m.backend.End()
}
