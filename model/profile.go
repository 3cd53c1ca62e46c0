package model

import (
	"fmt"

	"waybill/kernels"
)

// Profile runs the largest step of s once, and prepares those of other sizes, over a cache that it closes again: tokens
// of sequences of at most positions each, and all the rows of logits. Afterwards the
// device has taken what steps need beside weights, activations and cache.
func (m *Model) Profile(b kernels.Stepper, s *Scratch, blockSize, positions int, kv kernels.DType) (err error) {
	per := min(positions, m.cfg.MaxPositionEmbeddings, s.maxTokens)
	batch := &kernels.Batch{}
	blocks := int32(0)
	for left := s.maxTokens; left > 0; left -= per {
		n := min(per, left)
		seq := kernels.BatchSeq{First: len(batch.Tokens), Len: n}
		for p := range n {
			if p%blockSize == 0 {
				seq.Blocks = append(seq.Blocks, blocks)
				blocks++
			}
			batch.Tokens, batch.Positions = append(batch.Tokens, int32(p%m.cfg.VocabSize)), append(batch.Positions, int32(p))
			batch.Slots = append(batch.Slots, seq.Blocks[p/blockSize]*int32(blockSize)+int32(p%blockSize))
		}
		batch.Seqs = append(batch.Seqs, seq)
	}
	for i := range min(s.maxLogits, len(batch.Tokens)) {
		batch.Logits = append(batch.Logits, int32(len(batch.Tokens)-1-i))
	}
	cache, err := b.NewCache(m.CacheSpec(blockSize, int(blocks), kv))
	if err != nil {
		return fmt.Errorf("model: profile a step of %d tokens: %w", s.maxTokens, err)
	}
	defer func() {
		if e := cache.Close(); err == nil && e != nil {
			err = fmt.Errorf("model: profile: %w", e)
		}
	}()
	forward := func(b *kernels.Batch) kernels.Buffer { return m.Forward(b, cache, s) }
	if err := b.Start(batch, forward); err != nil {
		return fmt.Errorf("model: profile a step of %d tokens: %w", s.maxTokens, err)
	}
	if _, err := b.Finish(make([]kernels.Picked, len(batch.Logits)), nil); err != nil {
		return fmt.Errorf("model: profile a step of %d tokens: %w", s.maxTokens, err)
	}
	if p, ok := b.(kernels.ProductLoader); ok {
		if err := p.LoadProducts(s.maxTokens); err != nil {
			return fmt.Errorf("model: load the products of steps of %d tokens: %w", s.maxTokens, err)
		}
	}
	return nil
}
