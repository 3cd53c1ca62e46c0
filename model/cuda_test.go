//go:build cuda

package model

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"waybill/kernels"
	"waybill/kernels/cuda"
)

// These need a GPU: `make cuda-tests` builds them, a GPU machine runs them.

func gpu(t testing.TB, o ...cuda.Options) kernels.Stepper {
	t.Helper()
	b, err := cuda.Open(append(o, cuda.Options{})[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b.(kernels.Stepper)
}

// bfloat16 is what a golden file says of transformers in bfloat16.
type bfloat16 struct {
	Noise     float64 `json:"bfloat16_noise"`
	Disagrees string  `json:"bfloat16_disagrees"`
}

// TestTinyModelsOnTheGPU feeds the golden tokens and compares position by position,
// once all at once and once token by token through recorded steps. transformers in
// bfloat16 is off by at most noise in a logit: two logits that are further apart
// than twice that must keep their order, and of no model may more best tokens differ
// than differ there.
func TestTinyModelsOnTheGPU(t *testing.T) {
	for _, name := range tinyModels {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("testdata", "tiny", name)
			path := filepath.Join(dir, "golden.json")
			g := readGolden(t, path)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var ref bfloat16
			if err := json.Unmarshal(data, &ref); err != nil || ref.Noise <= 0 {
				t.Fatalf("%s: %+v, %v", path, ref, err)
			}
			var allowed, of int
			if _, err := fmt.Sscanf(ref.Disagrees, "%d of %d", &allowed, &of); err != nil {
				t.Fatal(err)
			}
			m := loadModel(t, dir, gpu(t))
			r := newRunner(t, m, 16, kernels.BF16)
			check := func(what string, picked func(p *goldenPrompt) []int32) {
				var margins []string
				for i := range g.Prompts {
					p := &g.Prompts[i]
					for k, id := range picked(p) {
						if id == p.Tokens[k] {
							continue
						}
						margins = append(margins, fmt.Sprintf("%s/%d %.3f", p.ID, k, p.Margins[k]))
						if p.Margins[k] > 2*ref.Noise {
							t.Errorf("%s: prompt %s: token %d is %d, want %d (margin %g)", what, p.ID, k, id, p.Tokens[k], p.Margins[k])
						}
					}
				}
				t.Logf("%s, %s: %d tokens differ, transformers %s (noise %g); margins %v", name, what, len(margins), ref.Disagrees, ref.Noise, margins)
				if len(margins) > allowed {
					t.Errorf("%s: %d of %d tokens differ, in transformers %d", what, len(margins), of, allowed)
				}
			}
			// How far the difference of the best two logits is off, where the file has it.
			var squares float64
			var n int
			check("at once", func(p *goldenPrompt) (ids []int32) {
				for k, row := range forced(r, p) {
					if ids = append(ids, argmax(row)); k < len(p.Top) {
						d := float64(row[p.Top[k].IDs[0]]-row[p.Top[k].IDs[1]]) - p.Margins[k]
						squares, n = squares+d*d, n+1
					}
				}
				return ids
			})
			t.Logf("%s, at once: margins are off by %.4f rms at %d positions", name, math.Sqrt(squares/float64(n)), n)
			check("token by token", func(p *goldenPrompt) []int32 { return r.steps(p, nil) })
			// Steps that are given up compute the rows of the one that comes: had they
			// stored anything, or were their numbers mixed up, tokens would change.
			m = loadModel(t, dir, gpu(t, cuda.Options{FirstTakes: 40 * time.Microsecond})) // a layer and more
			r = newRunner(t, m, 16, kernels.BF16)
			rng := rand.New(rand.NewPCG(1, 2))
			check("token by token, queued ahead", func(p *goldenPrompt) []int32 { return r.steps(p, rng) })
		})
	}
}

// steps feeds a prompt and then its golden tokens one by one through Start and
// Finish, beside a neighbour, and returns what was picked. With rng, steps are prepared
// with wrong tokens and queued ahead, and some of them given up.
func (r *runner) steps(p *goldenPrompt, rng *rand.Rand) (ids []int32) {
	r.t.Helper()
	b := r.m.Backend().(kernels.Stepper)
	forward := func(b *kernels.Batch) kernels.Buffer { return r.m.Forward(b, r.cache, r.scratch) }
	per := func(n int) int { return (n + r.blockSize - 1) / r.blockSize }
	most := per(len(p.IDs) + len(p.Tokens))
	// Block 0 is where a row without a slot might store something.
	free := slices.Clone(r.free)
	at := slices.Index(free, 0)
	free[0], free[at] = free[at], free[0]
	tables := [2][]int32{free[:most], free[most : 2*most]}
	batchOf := func(pos int, fed []int32) *kernels.Batch {
		batch := &kernels.Batch{}
		for _, table := range tables {
			first := len(batch.Tokens)
			for i, id := range fed {
				at := pos + i
				batch.Tokens, batch.Positions = append(batch.Tokens, id), append(batch.Positions, int32(at))
				batch.Slots = append(batch.Slots, table[at/r.blockSize]*int32(r.blockSize)+int32(at%r.blockSize))
			}
			batch.Seqs = append(batch.Seqs, kernels.BatchSeq{First: first, Len: len(fed), Context: pos, Blocks: table[:per(pos+len(fed))]})
			batch.Logits = append(batch.Logits, int32(first+len(fed)-1))
		}
		return batch
	}
	const chunk = 500 // two of them fit the scratch
	ready := false
	for pos, fed := 0, p.IDs[:min(chunk, len(p.IDs))]; ; {
		batch := batchOf(pos, fed)
		pos += len(fed)
		var err error
		if ready && rng.IntN(2) == 0 {
			err = b.StartPrepared(batch.Tokens)
		} else {
			err = b.Start(batch, forward)
		}
		if err != nil {
			r.t.Fatal(err)
		}
		var out [2]kernels.Picked
		ready = false
		meanwhile := func(bool) {
			if rng != nil && !ready && pos >= len(p.IDs) && pos < len(p.IDs)+len(p.Tokens)-1 {
				ready = b.Prepare(batchOf(pos, []int32{0}))
				b.QueueAhead()
			}
		}
		if _, err := b.Finish(out[:], meanwhile); err != nil {
			r.t.Fatal(err)
		}
		if rng != nil && rng.IntN(3) == 0 {
			b.GiveUp()
			ready = false
		}
		if out[0].Token != out[1].Token || out[0].Finite != out[1].Finite {
			r.t.Errorf("prompt %s: equal sequences picked %+v", p.ID, out)
		}
		if pos < len(p.IDs) {
			fed = p.IDs[pos:min(pos+chunk, len(p.IDs))]
			continue
		}
		if ids = append(ids, out[0].Token); len(ids) == len(p.Tokens) {
			return ids
		}
		fed = p.Tokens[len(ids)-1 : len(ids)]
	}
}

// shapes are the models whose speed counts.
var shapes = map[string]Config{
	"Qwen3-0.6B": {Architecture: "qwen3", HiddenSize: 1024, NumLayers: 28, NumHeads: 16, NumKVHeads: 8, HeadDim: 128,
		IntermediateSize: 3072, VocabSize: 151936, RMSNormEps: 1e-6, RopeTheta: 1e6, TieWordEmbeddings: true, MaxPositionEmbeddings: 40960},
	"Qwen3-8B": {Architecture: "qwen3", HiddenSize: 4096, NumLayers: 36, NumHeads: 32, NumKVHeads: 8, HeadDim: 128,
		IntermediateSize: 12288, VocabSize: 151936, RMSNormEps: 1e-6, RopeTheta: 1e6, MaxPositionEmbeddings: 40960},
}

// TestStepTimes prints how long steps of the shapes take, on the device's clock and
// from Start to Finish, medians, and how long the device waits for the next.
func TestStepTimes(t *testing.T) {
	for i := range 4 {
		name := []string{"Qwen3-0.6B", "Qwen3-8B"}[i%2]
		o := []cuda.Options{{}, {StreamRows: 8}}[i/2]
		b := gpu(t, o)
		t.Logf("%+v", o)
		from := time.Now()
		m, err := Load(&Source{Path: name, Config: shapes[name]}, b, LoadOptions{Dummy: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: loaded in %v", name, time.Since(from))
		const tokens, blocks = 8192, 8192
		cache, err := b.NewCache(m.CacheSpec(16, blocks, kernels.BF16))
		if err != nil {
			t.Fatal(err)
		}
		defer cache.Close()
		scratch, err := m.NewScratch(tokens, 256)
		if err != nil {
			t.Fatal(err)
		}
		forward := func(b *kernels.Batch) kernels.Buffer { return m.Forward(b, cache, scratch) }
		measure := func(what string, batch *kernels.Batch, rounds int) {
			var device, wall, gap []time.Duration
			var ended time.Duration
			for i := range rounds + 3 {
				from := time.Now()
				if err := b.Start(batch, forward); err != nil {
					t.Fatal(err)
				}
				out := make([]kernels.Picked, len(batch.Logits))
				times, err := b.Finish(out, nil)
				if err != nil {
					t.Fatal(err)
				}
				if i >= 3 {
					wall, device = append(wall, time.Since(from)), append(device, times.Ended-times.Started)
					gap = append(gap, times.Started-ended)
				}
				ended = times.Ended
				if !out[0].Finite {
					t.Errorf("%s: logits are not finite", what)
				}
			}
			slices.Sort(device)
			slices.Sort(wall)
			slices.Sort(gap)
			t.Logf("%s %-22s device %8.3f ms, wall %8.3f ms (p99 %.3f), idle between steps %.1f µs (p99 %.1f)", name, what,
				ms(device[rounds/2]), ms(wall[rounds/2]), ms(wall[rounds*99/100]), 1e3*ms(gap[rounds/2]), 1e3*ms(gap[rounds*99/100]))
		}
		for _, rows := range []int{1, 2, 4, 8, 16, 32, 48, 64, 128} {
			measure(fmt.Sprintf("decode %d x 300", rows), stepOf(rows, 1, 300), 50)
		}
		measure("decode 32 x 1100", stepOf(32, 1, 1100), 30)
		measure("decode 1 x 8000", stepOf(1, 1, 8000), 30)
		if i >= 2 {
			continue // only decoding depends on the options
		}
		for _, n := range []int{16, 64, 256, 1024, 2048, 4096, 8192} {
			measure(fmt.Sprintf("prefill %d", n), stepOf(1, n, 0), 8)
		}
		mixed := stepOf(9, 1, 300)
		last := stepOf(1, 64, 0)
		mixed.Tokens, mixed.Positions = append(mixed.Tokens[:8], last.Tokens...), append(mixed.Positions[:8], last.Positions...)
		mixed.Slots = append(mixed.Slots[:8], last.Slots...)
		for i := range last.Slots {
			mixed.Slots[8+i] += 16 * 4000
		}
		mixed.Seqs[8] = kernels.BatchSeq{First: 8, Len: 64, Blocks: []int32{4000, 4001, 4002, 4003}}
		mixed.Logits[8] = 71
		measure("decode 8 + prefill 64", mixed, 20)
	}
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

// stepOf returns a batch of seqs sequences that each add n tokens to context.
func stepOf(seqs, n, context int) *kernels.Batch {
	b := &kernels.Batch{}
	per := (context + n + 15) / 16
	for r := range seqs {
		s := kernels.BatchSeq{First: len(b.Tokens), Len: n, Context: context}
		for i := range per {
			s.Blocks = append(s.Blocks, int32(r*per+i))
		}
		for i := range n {
			p := context + i
			b.Tokens, b.Positions = append(b.Tokens, int32((r*31+i*7)%1000)), append(b.Positions, int32(p))
			b.Slots = append(b.Slots, s.Blocks[p/16]*16+int32(p%16))
		}
		b.Logits = append(b.Logits, int32(len(b.Tokens)-1))
		b.Seqs = append(b.Seqs, s)
	}
	return b
}
