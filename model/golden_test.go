package model

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"waybill/kernels"
	"waybill/kernels/cpu"
)

// golden is the part of a golden file that the forward pass must reproduce.
type golden struct {
	LeastMargin  float64 `json:"least_margin"`
	Float32Noise float64 `json:"float32_noise"`
	Prompts      []goldenPrompt
}

type goldenPrompt struct {
	ID      string    `json:"id"`
	IDs     []int32   `json:"ids"`
	Tokens  []int32   `json:"tokens"`
	Margins []float64 `json:"margins"`
	Top     []struct {
		IDs    []int32   `json:"ids"`
		Logits []float64 `json:"logits"`
	} `json:"top"`
	Trace *struct {
		Input  []float64   `json:"input"`
		Layers [][]float64 `json:"layers"`
		Norm   []float64   `json:"norm"`
	} `json:"trace"`
}

func readGolden(t testing.TB, path string) golden {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if len(g.Prompts) == 0 {
		t.Fatalf("%s has no prompts", path)
	}
	return g
}

// cpuBackend returns the backend under test, on one thread: the tiny models'
// steps are shorter than waking a second one.
func cpuBackend(t testing.TB, m cpu.Math) kernels.Backend {
	t.Helper()
	return openCPU(t, cpu.Options{Threads: 1, Math: m})
}

func openCPU(t testing.TB, o cpu.Options) kernels.Backend {
	t.Helper()
	b, err := cpu.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func loadModel(t testing.TB, path string, b kernels.Backend) *Model {
	t.Helper()
	src, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Load(src, b, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// runner drives a model as an engine does: paged cache, chunks, several
// sequences in one batch.
type runner struct {
	t         testing.TB
	m         *Model
	cache     kernels.Cache
	scratch   *Scratch
	blockSize int
	free      []int32
	logits    []float32
}

// runSeq is a sequence of a runner.
type runSeq struct {
	tokens []int32 // in the cache
	blocks []int32
}

func newRunner(t testing.TB, m *Model, blockSize int, dt kernels.DType) *runner {
	t.Helper()
	const positions, maxTokens, maxLogits = 6400, 1024, 64
	r := &runner{t: t, m: m, blockSize: blockSize, logits: make([]float32, maxLogits*m.cfg.VocabSize)}
	n := positions / blockSize
	var err error
	if r.cache, err = m.Backend().NewCache(m.CacheSpec(blockSize, n, dt)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.cache.Close() })
	if r.scratch, err = m.NewScratch(maxTokens, maxLogits); err != nil {
		t.Fatal(err)
	}
	// Neighbouring blocks of a sequence are no neighbours in memory.
	for i := range n {
		r.free = append(r.free, int32((i*7+3)%n))
	}
	if n%7 == 0 {
		t.Fatalf("%d blocks: 7 steps do not reach all", n)
	}
	return r
}

// feed is one sequence's part of a step.
type feed struct {
	seq    *runSeq
	tokens []int32
	logits int // logits of the last so many tokens are wanted
}

// step runs one step and returns a row of logits for each token asked for.
func (r *runner) step(feeds ...feed) [][]float32 {
	r.t.Helper()
	var b kernels.Batch
	for _, f := range feeds {
		s := f.seq
		bs := kernels.BatchSeq{First: len(b.Tokens), Len: len(f.tokens), Context: len(s.tokens)}
		for i, id := range f.tokens {
			pos := len(s.tokens) + i
			if pos/r.blockSize == len(s.blocks) {
				s.blocks = append(s.blocks, r.free[0])
				r.free = r.free[1:]
			}
			b.Tokens = append(b.Tokens, id)
			b.Positions = append(b.Positions, int32(pos))
			b.Slots = append(b.Slots, s.blocks[pos/r.blockSize]*int32(r.blockSize)+int32(pos%r.blockSize))
			if i >= len(f.tokens)-f.logits {
				b.Logits = append(b.Logits, int32(len(b.Tokens)-1))
			}
		}
		s.tokens = append(s.tokens, f.tokens...)
		bs.Blocks = s.blocks
		b.Seqs = append(b.Seqs, bs)
	}
	if err := r.m.Step(&b, r.cache, r.scratch, r.logits); err != nil {
		r.t.Fatal(err)
	}
	rows := make([][]float32, len(b.Logits))
	for i := range rows {
		rows[i] = slices.Clone(r.logits[i*r.m.cfg.VocabSize : (i+1)*r.m.cfg.VocabSize])
	}
	return rows
}

// release gives a sequence's blocks back.
func (r *runner) release(s *runSeq) {
	r.free = append(r.free, s.blocks...)
	*s = runSeq{}
}

// prefill feeds ids in chunks of the given sizes, over and over, and returns the
// last token's logits.
func (r *runner) prefill(s *runSeq, ids []int32, chunks ...int) []float32 {
	r.t.Helper()
	for i := 0; len(ids) > 0; i++ {
		n := min(chunks[i%len(chunks)], len(ids))
		if n == len(ids) {
			return r.step(feed{s, ids, 1})[0]
		}
		r.step(feed{s, ids[:n], 0})
		ids = ids[n:]
	}
	r.t.Fatal("no tokens")
	return nil
}

// generate returns n greedy tokens and the logits that each was chosen from.
func (r *runner) generate(s *runSeq, logits []float32, n int) (tokens []int32, rows [][]float32) {
	r.t.Helper()
	for {
		id := argmax(logits)
		tokens, rows = append(tokens, id), append(rows, logits)
		if len(tokens) == n {
			return tokens, rows
		}
		logits = r.step(feed{s, []int32{id}, 1})[0]
	}
}

func argmax(x []float32) int32 {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return int32(best)
}

// checkTop compares the reference's five best logits of the first positions.
func checkTop(t testing.TB, p *goldenPrompt, rows [][]float32, bound float64) {
	t.Helper()
	worst := 0.0
	for i, top := range p.Top {
		if i >= len(rows) {
			break
		}
		for j, id := range top.IDs {
			d := math.Abs(float64(rows[i][id]) - top.Logits[j])
			worst = max(worst, d)
			if !(d <= bound) {
				t.Errorf("prompt %s, position %d: logit of %d is %g, want %g ± %g", p.ID, i, id, rows[i][id], top.Logits[j], bound)
			}
		}
	}
	t.Logf("prompt %s: logits within %.2g of the reference (bound %.2g)", p.ID, worst, bound)
}

var tinyModels = []string{"llama", "mistral", "qwen2", "qwen3", "qwen3_tied"}

const wholePrompt = 1 << 20

// TestTinyModelsReproduceTheReference holds every token, the logits and the
// intermediate activations against transformers in float32.
func TestTinyModelsReproduceTheReference(t *testing.T) {
	for _, name := range tinyModels {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("testdata", "tiny", name)
			g := readGolden(t, filepath.Join(dir, "golden.json"))
			m := loadModel(t, dir, cpuBackend(t, cpu.F32))
			r := newRunner(t, m, 16, kernels.F32)
			// Two float32 runs that sum in different orders: each is off by about
			// float32_noise, measured as the largest difference from float64, and
			// a factor of two is for the noise of that maximum. The file rounds to
			// five decimals.
			bound := 4*g.Float32Noise + 5e-6
			for _, p := range g.Prompts {
				var s runSeq
				trace := traceNorms(r)
				logits := r.prefill(&s, p.IDs, wholePrompt)
				residual, normed := trace()
				checkTrace(t, &p, residual, normed)
				tokens, rows := r.generate(&s, logits, len(p.Tokens))
				if !slices.Equal(tokens, p.Tokens) {
					t.Errorf("prompt %s:\n got %v\nwant %v", p.ID, tokens, p.Tokens)
				}
				checkTop(t, &p, rows, bound)
				r.release(&s)
			}
		})
	}
}

// traceNorms records the last row of the residual stream and of its norm at each
// norm of the next step.
func traceNorms(r *runner) func() (residual, normed [][]float32) {
	var residual, normed [][]float32
	hidden := r.m.cfg.HiddenSize
	r.scratch.pass.onNorm = func(x, n kernels.Buffer, rows int) {
		for _, c := range []struct {
			src kernels.Buffer
			dst *[][]float32
		}{{x, &residual}, {n, &normed}} {
			all := make([]float32, rows*hidden)
			r.m.Backend().Read(all, c.src)
			*c.dst = append(*c.dst, all[(rows-1)*hidden:])
		}
	}
	return func() (_, _ [][]float32) {
		r.scratch.pass.onNorm = nil
		return residual, normed
	}
}

func checkTrace(t testing.TB, p *goldenPrompt, residual, normed [][]float32) {
	t.Helper()
	check := func(what string, got []float32, want []float64) {
		t.Helper()
		for i, w := range want {
			// The file has six digits; the noise of a few layers is below 1e-5 of
			// the largest activations, which are about ten times these.
			if d := math.Abs(float64(got[i]) - w); !(d <= 1e-4*max(1, math.Abs(w))) {
				t.Errorf("prompt %s: %s[%d] is %g, want %g", p.ID, what, i, got[i], w)
			}
		}
	}
	if p.Trace == nil || len(p.Trace.Layers)*2+1 != len(residual) {
		t.Fatalf("prompt %s: %d norms were traced, the golden trace is %+v", p.ID, len(residual), p.Trace)
	}
	check("input", residual[0], p.Trace.Input)
	for i, want := range p.Trace.Layers {
		check(fmt.Sprintf("output of layer %d", i), residual[2*i+2], want)
	}
	check("final norm", normed[len(normed)-1], p.Trace.Norm)
}

// TestChunksAndBlocksDoNotChangeABit feeds the same prompts in odd chunks and
// over other block sizes: every logit must be the same bits.
func TestChunksAndBlocksDoNotChangeABit(t *testing.T) {
	variants := []struct {
		blockSize int
		chunks    []int
	}{{16, []int{1}}, {16, []int{7}}, {32, []int{3, 64, 5}}, {1, []int{17}}, {5, []int{16, 1}}, {64, []int{33}}}
	for _, name := range tinyModels {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("testdata", "tiny", name)
			g := readGolden(t, filepath.Join(dir, "golden.json"))
			m := loadModel(t, dir, cpuBackend(t, cpu.F32))
			whole := newRunner(t, m, 16, kernels.F32)
			for _, p := range g.Prompts {
				var s runSeq
				want, wantRows := whole.generate(&s, whole.prefill(&s, p.IDs, wholePrompt), 8)
				whole.release(&s)
				for _, v := range variants {
					r := newRunner(t, m, v.blockSize, kernels.F32)
					var s runSeq
					got, gotRows := r.generate(&s, r.prefill(&s, p.IDs, v.chunks...), 8)
					if !slices.Equal(got, want) {
						t.Fatalf("prompt %s, %+v:\n got %v\nwant %v", p.ID, v, got, want)
					}
					for i := range wantRows {
						if !slices.Equal(gotRows[i], wantRows[i]) {
							t.Fatalf("prompt %s, %+v: logits of token %d differ from those of the whole prompt", p.ID, v, i)
						}
					}
				}
			}
		})
	}
}

// TestCompanyDoesNotChangeABit runs all prompts in one batch, starting at
// different steps, and compares with each alone.
func TestCompanyDoesNotChangeABit(t *testing.T) {
	for _, name := range tinyModels {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("testdata", "tiny", name)
			g := readGolden(t, filepath.Join(dir, "golden.json"))
			m := loadModel(t, dir, cpuBackend(t, cpu.F32))
			r := newRunner(t, m, 16, kernels.F32)
			const steps = 30
			seqs := make([]runSeq, len(g.Prompts))
			got := make([][]int32, len(g.Prompts))
			rows := make([][][]float32, len(g.Prompts))
			for step := range steps {
				var feeds []feed
				var who []int
				for i := range seqs {
					fed, prompt := len(seqs[i].tokens), g.Prompts[i].IDs
					switch n := min(len(prompt)-fed, 50+7*i); {
					case step < 2*i: // not arrived
					case fed < len(prompt):
						f := feed{&seqs[i], prompt[fed : fed+n], 0}
						if fed+n == len(prompt) {
							f.logits, who = 1, append(who, i)
						}
						feeds = append(feeds, f)
					default:
						last := got[i][len(got[i])-1]
						feeds, who = append(feeds, feed{&seqs[i], []int32{last}, 1}), append(who, i)
					}
				}
				for k, row := range r.step(feeds...) {
					i := who[k]
					got[i], rows[i] = append(got[i], argmax(row)), append(rows[i], row)
				}
			}
			for i, p := range g.Prompts {
				n := min(len(got[i]), len(p.Tokens))
				if n < 4 || !slices.Equal(got[i][:n], p.Tokens[:n]) {
					t.Errorf("prompt %s in company:\n got %v\nwant %v", p.ID, got[i], p.Tokens[:n])
				}
				var s runSeq
				alone := r.prefill(&s, p.IDs, wholePrompt)
				if !slices.Equal(alone, rows[i][0]) {
					t.Errorf("prompt %s: first logits in company differ from those alone", p.ID)
				}
				r.release(&s)
			}
		})
	}
}

// TestThreadsDoNotChangeABit and the next cover the backend's other settings with
// one prompt that is longer than an attention tile and the sliding window.
func TestThreadsDoNotChangeABit(t *testing.T) {
	for _, name := range tinyModels {
		dir := filepath.Join("testdata", "tiny", name)
		p := readGolden(t, filepath.Join(dir, "golden.json")).Prompts[4]
		var want []float32
		for _, threads := range []int{1, 2, 3} {
			r := newRunner(t, loadModel(t, dir, openCPU(t, cpu.Options{Threads: threads, Math: cpu.F32})), 16, kernels.F32)
			var s runSeq
			got := r.prefill(&s, p.IDs, 33)
			if want == nil {
				want = got
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %d threads give other bits than one", name, threads)
			}
		}
	}
}

func TestEveryLevelReproducesTheReference(t *testing.T) {
	for _, level := range cpu.Levels() {
		for _, name := range tinyModels {
			dir := filepath.Join("testdata", "tiny", name)
			p := readGolden(t, filepath.Join(dir, "golden.json")).Prompts[4]
			r := newRunner(t, loadModel(t, dir, openCPU(t, cpu.Options{Threads: 1, Math: cpu.F32, Level: level})), 16, kernels.F32)
			var s runSeq
			tokens, _ := r.generate(&s, r.prefill(&s, p.IDs, wholePrompt), len(p.Tokens))
			if !slices.Equal(tokens, p.Tokens) {
				t.Errorf("%s, level %s, prompt %s:\n got %v\nwant %v", name, level, p.ID, tokens, p.Tokens)
			}
		}
	}
}

// TestDecodeStepDoesNotAllocate holds the whole step on the CPU backend.
func TestDecodeStepDoesNotAllocate(t *testing.T) {
	for _, m := range []cpu.Math{cpu.F32, cpu.Int8} {
		dir := filepath.Join("testdata", "tiny", "qwen3")
		r := newRunner(t, loadModel(t, dir, cpuBackend(t, m)), 16, kernels.F32)
		b := &kernels.Batch{
			Tokens: []int32{5, 6}, Positions: []int32{0, 0}, Slots: []int32{0, 16}, Logits: []int32{0, 1},
			Seqs: []kernels.BatchSeq{{First: 0, Len: 1, Blocks: []int32{0}}, {First: 1, Len: 1, Blocks: []int32{1}}},
		}
		if n := testing.AllocsPerRun(50, func() { r.m.Step(b, r.cache, r.scratch, r.logits) }); n != 0 {
			t.Errorf("%v: %g allocations a step, want 0", m, n)
		}
	}
}
