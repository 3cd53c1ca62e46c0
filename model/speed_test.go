package model

import (
	"fmt"
	"os"
	"testing"

	"waybill/kernels"
	"waybill/kernels/cpu"
)

// BenchmarkSmolLM2 measures what llama-bench and llama-batched-bench measure, on
// the same file: prompts alone, and decode steps from position 128 on, logits
// included and sampling not. `make bench-peer` runs it in turns with them.
func BenchmarkSmolLM2(b *testing.B) {
	const blockSize, depth, longest, most = 16, 128, 1024, 16
	src, err := Open(smolPath(b))
	if err != nil {
		b.Fatal(err)
	}
	backend, err := cpu.New(cpu.Options{Level: os.Getenv("WAYBILL_CPU")})
	if err != nil {
		b.Fatal(err)
	}
	defer backend.Close()
	m, err := Load(src, backend, LoadOptions{})
	if err != nil {
		b.Fatal(err)
	}
	const perSeq = (depth + longest) / blockSize
	cache, err := backend.NewCache(m.CacheSpec(blockSize, most*perSeq, kernels.F16))
	if err != nil {
		b.Fatal(err)
	}
	defer cache.Close()
	scratch, err := m.NewScratch(longest, most)
	if err != nil {
		b.Fatal(err)
	}
	logits := make([]float32, most*m.cfg.VocabSize)
	step := func(b *testing.B, batch *kernels.Batch) {
		if err := m.Step(batch, cache, scratch, logits); err != nil {
			b.Fatal(err)
		}
	}
	// add appends n tokens of sequence seq from position first on.
	add := func(batch *kernels.Batch, seq, first, n int) {
		s := kernels.BatchSeq{First: len(batch.Tokens), Len: n, Context: first}
		for i := range perSeq {
			s.Blocks = append(s.Blocks, int32(seq*perSeq+i))
		}
		for p := first; p < first+n; p++ {
			batch.Tokens = append(batch.Tokens, int32((p*7919+seq*104729)%m.cfg.VocabSize))
			batch.Positions = append(batch.Positions, int32(p))
			batch.Slots = append(batch.Slots, int32(seq*perSeq*blockSize+p))
		}
		batch.Seqs = append(batch.Seqs, s)
		batch.Logits = append(batch.Logits, int32(len(batch.Tokens)-1))
	}
	rate := func(b *testing.B, tokens int) { b.ReportMetric(float64(b.N*tokens)/b.Elapsed().Seconds(), "tok/s") }
	for _, n := range []int{64, 512, longest} {
		b.Run(fmt.Sprintf("prefill=%d", n), func(b *testing.B) {
			batch := &kernels.Batch{}
			add(batch, 0, 0, n)
			step(b, batch)
			for b.Loop() {
				step(b, batch)
			}
			rate(b, n)
		})
	}
	for _, rows := range []int{1, 2, 4, 8, most} {
		b.Run(fmt.Sprintf("decode=%d", rows), func(b *testing.B) {
			for seq := range rows {
				batch := &kernels.Batch{}
				add(batch, seq, 0, depth)
				step(b, batch)
			}
			var steps []*kernels.Batch
			for p := depth; p < depth+64; p++ {
				batch := &kernels.Batch{}
				for seq := range rows {
					add(batch, seq, p, 1)
				}
				steps = append(steps, batch)
			}
			for i := 0; b.Loop(); i++ {
				step(b, steps[i%len(steps)])
			}
			rate(b, rows)
		})
	}
}
