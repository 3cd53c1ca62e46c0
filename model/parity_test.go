//go:build cuda

package model

import (
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"waybill/kernels"
)

var parityFolder = flag.String("parity", "", "folder that parity.py wrote")

// parity is parity.json: what transformers makes of a model.
type parity struct {
	Noise       float64 `json:"bfloat16_noise"`
	Disagrees   string  `json:"bfloat16_disagrees"`
	MarginRMS   float64 `json:"bfloat16_margin_rms"`
	MarginWorst float64 `json:"bfloat16_margin_worst"`
	Rows        []struct {
		Prompt, Position int
	} `json:"rows"`
	Prompts []struct {
		goldenPrompt
		BFloat16 []int32 `json:"bfloat16"`
	} `json:"prompts"`
}

// TestParity compares models of real size with transformers in float32. The bounds are
// what transformers' own bfloat16 is off by in the same file: a distance of the best
// two logits by at most MarginWorst, a logit by at most Noise. Generated tokens must be
// equal up to the first close call, fed ones wherever it is none, and no more of those
// may differ than in transformers.
func TestParity(t *testing.T) {
	if *parityFolder == "" {
		t.Skip("no -parity folder")
	}
	folders, err := filepath.Glob(filepath.Join(*parityFolder, "*", "parity.json"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("%s: no models, %v", *parityFolder, err)
	}
	for _, path := range folders {
		dir := filepath.Dir(path)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			var ref parity
			data, err := os.ReadFile(path)
			if err == nil {
				err = json.Unmarshal(data, &ref)
			}
			if err != nil || len(ref.Prompts) == 0 || ref.MarginWorst <= 0 {
				t.Fatalf("%s: %d prompts, %v", path, len(ref.Prompts), err)
			}
			checkParity(t, dir, &ref)
		})
	}
}

func checkParity(t *testing.T, dir string, ref *parity) {
	m := loadModel(t, dir, gpu(t))
	p := newParallel(t, m)
	var prompts []*goldenPrompt
	for i := range ref.Prompts {
		prompts = append(prompts, &ref.Prompts[i].goldenPrompt)
	}
	// Generated, all at once.
	equal, whole, closed := 0, 0, 0
	for i, ids := range p.generate(prompts) {
		g := prompts[i]
		k := 0
		for k < len(ids) && ids[k] == g.Tokens[k] {
			k++
		}
		equal += k
		switch {
		case k == len(ids):
			whole++
		case !closeCallBefore(g.Margins[:k+1], ref.MarginWorst):
			t.Errorf("prompt %s: generated token %d is %d, want %d (margin %g, bound %g)", g.ID, k, ids[k], g.Tokens[k], g.Margins[k], ref.MarginWorst)
		default:
			closed++
		}
	}
	theirs := 0
	for i := range ref.Prompts {
		for k, id := range ref.Prompts[i].BFloat16 {
			if id != ref.Prompts[i].Tokens[k] {
				break
			}
			theirs++
		}
	}
	// Fed.
	var allowed, of, differ int
	if _, err := fmt.Sscanf(ref.Disagrees, "%d of %d", &allowed, &of); err != nil {
		t.Fatal(err)
	}
	var worst float64
	file, err := os.Open(filepath.Join(dir, "logits.bin"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	want := make([]float32, m.cfg.VocabSize)
	next := 0
	for i, g := range prompts {
		rows := p.forced(g)
		for k, row := range rows {
			if id := argmax(row); id != g.Tokens[k] {
				differ++
				if g.Margins[k] > ref.MarginWorst {
					t.Errorf("prompt %s: token %d is %d, want %d (margin %g, bound %g)", g.ID, k, id, g.Tokens[k], g.Margins[k], ref.MarginWorst)
				}
			}
		}
		for ; next < len(ref.Rows) && ref.Rows[next].Prompt == i; next++ {
			if err := binary.Read(file, binary.LittleEndian, want); err != nil {
				t.Fatal(err)
			}
			for j, v := range rows[ref.Rows[next].Position] {
				worst = max(worst, math.Abs(float64(v-want[j])))
			}
		}
	}
	if differ > allowed {
		t.Errorf("%d of %d fed tokens differ, in transformers %d", differ, of, allowed)
	}
	if !(worst <= ref.Noise) {
		t.Errorf("a logit is off by %g, in transformers by at most %g", worst, ref.Noise)
	}
	t.Logf("parity %s: fed, %d of %d tokens differ, transformers %d (margin bound %.3f, rms %.3f); logits off by %.3f at most, transformers %.3f; "+
		"generated, %d tokens equal before the first difference, transformers %d; %d of %d prompts whole, %d left after a close call",
		filepath.Base(dir), differ, of, allowed, ref.MarginWorst, ref.MarginRMS, worst, ref.Noise, equal, theirs, whole, len(prompts), closed)
}

// closeCallBefore reports whether one of the margins is below bound.
func closeCallBefore(margins []float64, bound float64) bool {
	for _, m := range margins {
		if m < bound {
			return true
		}
	}
	return false
}

// parallel drives a model through steps, many sequences at once.
type parallel struct {
	t       testing.TB
	m       *Model
	b       kernels.Stepper
	cache   kernels.Cache
	scratch *Scratch
}

const (
	parallelTokens = 4096
	parallelBlock  = 16
	parallelBlocks = 32 // of a sequence
)

func newParallel(t testing.TB, m *Model) *parallel {
	t.Helper()
	p := &parallel{t: t, m: m, b: m.Backend().(kernels.Stepper)}
	var err error
	if p.cache, err = p.b.NewCache(m.CacheSpec(parallelBlock, 64*parallelBlocks, kernels.BF16)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.cache.Close() })
	if p.scratch, err = m.NewScratch(parallelTokens, 64); err != nil {
		t.Fatal(err)
	}
	return p
}

// add appends tokens of sequence i at position at to a batch, the last n of whose
// logits are wanted.
func (p *parallel) add(b *kernels.Batch, i, at int, tokens []int32, n int) {
	seq := kernels.BatchSeq{First: len(b.Tokens), Len: len(tokens), Context: at}
	for k := range (at + len(tokens) + parallelBlock - 1) / parallelBlock {
		seq.Blocks = append(seq.Blocks, int32(i*parallelBlocks+k))
	}
	for k, id := range tokens {
		pos := at + k
		if k >= len(tokens)-n {
			b.Logits = append(b.Logits, int32(len(b.Tokens)))
		}
		b.Tokens, b.Positions = append(b.Tokens, id), append(b.Positions, int32(pos))
		b.Slots = append(b.Slots, seq.Blocks[pos/parallelBlock]*parallelBlock+int32(pos%parallelBlock))
	}
	b.Seqs = append(b.Seqs, seq)
}

// run runs a step and returns what was picked.
func (p *parallel) run(b *kernels.Batch) []kernels.Picked {
	p.t.Helper()
	if err := p.b.Start(b, func(b *kernels.Batch) kernels.Buffer { return p.m.Forward(b, p.cache, p.scratch) }); err != nil {
		p.t.Fatal(err)
	}
	out := make([]kernels.Picked, len(b.Logits))
	if _, err := p.b.Finish(out, nil); err != nil {
		p.t.Fatal(err)
	}
	return out
}

// generate returns the greedy tokens of all prompts, computed side by side.
func (p *parallel) generate(prompts []*goldenPrompt) [][]int32 {
	ids := make([][]int32, len(prompts))
	for len(ids[0]) < len(prompts[0].Tokens) {
		b := &kernels.Batch{}
		for i, g := range prompts {
			if n := len(ids[i]); n == 0 {
				p.add(b, i, 0, g.IDs, 1)
			} else {
				p.add(b, i, len(g.IDs)+n-1, ids[i][n-1:], 1)
			}
		}
		for i, o := range p.run(b) {
			ids[i] = append(ids[i], o.Token)
		}
	}
	return ids
}

// forced returns the logits at the places of the prompt's tokens, fed at once.
func (p *parallel) forced(g *goldenPrompt) [][]float32 {
	b := &kernels.Batch{}
	n := len(g.Tokens)
	p.add(b, 0, 0, append(append([]int32(nil), g.IDs...), g.Tokens[:n-1]...), n)
	p.run(b)
	rows := make([][]float32, n)
	for k := range rows {
		rows[k] = make([]float32, p.m.cfg.VocabSize)
		if err := p.b.ReadLogits(rows[k], k); err != nil {
			p.t.Fatal(err)
		}
	}
	return rows
}
