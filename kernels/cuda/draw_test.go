//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"gorgonia.org/cu"

	"waybill/kernels"
	"waybill/model/sampling"
)

// rowsBench is a backend whose steps yield logits that the test has made.
type rowsBench struct {
	t      testing.TB
	b      *Backend
	vocab  int
	logits *buffer
}

func newRowsBench(t testing.TB, rows, vocab int) *rowsBench {
	t.Helper()
	b := openFor(t)
	buf, err := b.NewFloats(rows * vocab)
	if err != nil {
		t.Fatal(err)
	}
	logits := buf.(*buffer)
	logits.cols = vocab
	return &rowsBench{t: t, b: b, vocab: vocab, logits: logits}
}

// set writes the rows to the device.
func (r *rowsBench) set(rows [][]float32) {
	r.t.Helper()
	leave, err := r.b.enter()
	if err != nil {
		r.t.Fatal(err)
	}
	defer leave()
	for i, row := range rows {
		to := r.logits.float + cu.DevicePtr(i*r.vocab*4)
		if err := cu.MemcpyHtoD(to, unsafe.Pointer(&row[0]), int64(r.vocab)*4); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := cu.Synchronize(); err != nil {
		r.t.Fatal(err)
	}
}

// step runs one step over n rows, as decode rows, which are recorded, or as one prompt.
func (r *rowsBench) step(n int, decode bool, draws []kernels.Draw) ([]kernels.Picked, kernels.StepTime) {
	r.t.Helper()
	batch := &kernels.Batch{Draws: draws}
	for i := range n {
		batch.Tokens, batch.Positions = append(batch.Tokens, 0), append(batch.Positions, int32(i))
		batch.Slots, batch.Logits = append(batch.Slots, int32(i)), append(batch.Logits, int32(i))
		if decode {
			batch.Seqs = append(batch.Seqs, kernels.BatchSeq{First: i, Len: 1, Context: i, Blocks: make([]int32, n/16+1)})
		}
	}
	if !decode {
		batch.Seqs = []kernels.BatchSeq{{Len: n, Blocks: make([]int32, n/16+1)}}
	}
	if err := r.b.Start(batch, func(*kernels.Batch) kernels.Buffer { return r.logits }); err != nil {
		r.t.Fatal(err)
	}
	out := make([]kernels.Picked, n)
	times, err := r.b.Finish(out, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return out, times
}

// shapesOfRows are kinds of rows: flat, peaked, full of equal values, constant.
var shapesOfRows = []func(rng *rand.Rand, i int) float32{
	func(rng *rand.Rand, _ int) float32 { return float32(rng.NormFloat64()) },
	func(rng *rand.Rand, _ int) float32 { return float32(6 * rng.NormFloat64()) },
	func(rng *rand.Rand, _ int) float32 { return float32(math.Round(2 * rng.NormFloat64())) },
	func(*rand.Rand, int) float32 { return 3 },
	func(rng *rand.Rand, i int) float32 { return float32(-i%977) / 8 },
}

// one picks one of several values.
func one[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

// randomOptions returns parameters that a device takes.
func randomOptions(rng *rand.Rand, vocab int) sampling.Options {
	o := sampling.Defaults()
	o.Temperature = one(rng, 0, 0.2, 1, 1, 2.5)
	o.TopK = one(rng, 0, 0, 1, 2, 20, 50, 1024, 1500)
	o.TopP = one(rng, 1, 1, 0.95, 0.8, 0.3, 1e-6)
	o.MinP = one(rng, 0, 0, 0.02, 0.5, 1)
	o.Seed = rng.Uint64()
	o.Logprobs = one(rng, sampling.NoLogprobs, 0, 1, 5, 20, sampling.MaxLogprobs)
	if rng.IntN(2) == 0 {
		o.RepetitionPenalty = one(rng, 1, 1.3, 0.8)
		o.PresencePenalty, o.FrequencyPenalty = one(rng, 0, 1.5, -1), one(rng, 0, 0.25, -0.5)
	}
	if rng.IntN(3) == 0 {
		for _, id := range rng.Perm(vocab)[:min(vocab, 12)] {
			o.LogitBias = append(o.LogitBias, sampling.Bias{ID: int32(id), Value: float32(100*rng.Float64() - 50)})
		}
	}
	if rng.IntN(3) == 0 {
		o.MinTokens = 100
		for range min(vocab-1, 5) {
			o.StopIDs = append(o.StopIDs, int32(rng.IntN(vocab)))
		}
	}
	return o
}

// TestDrawsAreTheHosts holds the device's choice against the host's sampler: the same
// token, the same rank, the same best tokens, log-probabilities within the float32 that
// they are rounded to. Rows with a NaN or an infinity fail alone.
func TestDrawsAreTheHosts(t *testing.T) {
	const rows = 24
	vocabularies, rounds := []int{151936, 32000, 1000, 33}, 12
	if testing.Short() {
		vocabularies, rounds = vocabularies[1:], 3
	}
	for _, vocab := range vocabularies {
		r := newRowsBench(t, rows, vocab)
		rng := rand.New(rand.NewPCG(uint64(vocab), 9))
		sampler := sampling.NewSampler(vocab)
		drawn := 0
		for round := range rounds {
			data := make([][]float32, rows)
			draws := make([]kernels.Draw, rows)
			want := make([]sampling.Result, rows)
			fails := make([]error, rows)
			options := make([]sampling.Options, rows)
			for i := range rows {
				data[i] = make([]float32, vocab)
				shape := shapesOfRows[(i+round)%len(shapesOfRows)]
				for k := range data[i] {
					data[i][k] = shape(rng, k)
				}
				switch {
				case i == 5:
					data[i][rng.IntN(vocab)] = float32(math.NaN())
				case i == 6:
					data[i][rng.IntN(vocab)] = float32(math.Inf(1 - 2*rng.IntN(2)))
				}
				o := randomOptions(rng, vocab)
				if i == 7 { // all are banned
					o.MinTokens, o.StopIDs = 1000, nil
					for id := range vocab {
						o.StopIDs = append(o.StopIDs, int32(id))
					}
				}
				p, err := sampling.New(o, vocab)
				if err != nil {
					t.Fatal(err)
				}
				prompt := make([]int32, rng.IntN(60))
				for k := range prompt {
					prompt[k] = int32(rng.IntN(vocab + vocab/8)) // some have no logit
				}
				s := sampling.NewState(p, prompt)
				for range rng.IntN(40) {
					s.Append(int32(rng.IntN(min(vocab, 50))))
				}
				options[i] = o
				if i%8 != 3 { // these take the largest
					draws[i], _ = p.Draw(s, 0)
				}
				want[i], fails[i] = sampler.Sample(append([]float32(nil), data[i]...), p, s)
				want[i].Top = append([]sampling.TokenLogprob(nil), want[i].Top...)
			}
			r.set(data)
			got, _ := r.step(rows, round%4 != 3, draws)
			for i, g := range got {
				w, what := want[i], fmt.Sprintf("vocabulary %d, round %d, row %d, %+v", vocab, round, i, options[i])
				if len(what) > 700 {
					what = what[:700]
				}
				switch {
				case errors.Is(fails[i], sampling.ErrNotFinite):
					if g.Finite {
						t.Errorf("%s: a row that is not finite passes: %+v", what, g)
					}
				case !draws[i].On:
					if id, _ := largestOf(data[i]); g.Token != id || !g.Finite || g.Drawn {
						t.Errorf("%s: the largest is %d, got %+v", what, id, g)
					}
				case fails[i] != nil:
					if g.Token != -1 {
						t.Errorf("%s: nothing is allowed, got %+v", what, g)
					}
				default:
					drawn++
					if err := sameChoice(g, w, options[i].Logprobs); err != nil {
						t.Errorf("%s: %v", what, err)
					}
				}
			}
			// The rows must be as they were, for whoever reads them.
			row := make([]float32, vocab)
			for i := range rows {
				if err := r.b.ReadLogits(row, i); err != nil {
					t.Fatal(err)
				}
				for k := range row {
					if math.Float32bits(row[k]) != math.Float32bits(data[i][k]) {
						t.Fatalf("vocabulary %d, round %d: logit %d of row %d is %v, was %v", vocab, round, k, i, row[k], data[i][k])
					}
				}
			}
		}
		t.Logf("vocabulary %d: %d draws", vocab, drawn)
	}
}

func largestOf(row []float32) (id int32, v float32) {
	v = row[0]
	for i, x := range row {
		if x > v {
			id, v = int32(i), x
		}
	}
	return id, v
}

// sameChoice compares a device's outcome with the host's.
func sameChoice(g kernels.Picked, w sampling.Result, logprobs int) error {
	if !g.Drawn || !g.Finite || g.Token != w.Token {
		return fmt.Errorf("got token %d (drawn %v, finite %v), want %d", g.Token, g.Drawn, g.Finite, w.Token)
	}
	if logprobs == sampling.NoLogprobs {
		return nil
	}
	near := func(a, b float32) bool { return math.Abs(float64(a-b)) <= 1e-6*(1+math.Abs(float64(b))) }
	if !near(g.Logprob, w.Logprob) || int(g.Rank) != w.Rank || len(g.Top) != len(w.Top) {
		return fmt.Errorf("got log-probability %v, rank %d, %d best, want %v, %d, %d", g.Logprob, g.Rank, len(g.Top), w.Logprob, w.Rank, len(w.Top))
	}
	for k := range w.Top {
		if g.Top[k].ID != w.Top[k].ID || !near(g.Top[k].Logprob, w.Top[k].Logprob) {
			return fmt.Errorf("best token %d is %+v, want %+v", k, g.Top[k], w.Top[k])
		}
	}
	return nil
}

// TestDrawTimes prints what choosing tokens adds to a step, in µs.
func TestDrawTimes(t *testing.T) {
	const vocab, most = 151936, 128
	r := newRowsBench(t, most, vocab)
	rng := rand.New(rand.NewPCG(3, 3))
	data := make([][]float32, most)
	for i := range data {
		data[i] = make([]float32, vocab)
		for k := range data[i] {
			data[i][k] = float32(3 * rng.NormFloat64())
		}
	}
	r.set(data)
	time1 := func(n int, d *kernels.Draw) time.Duration {
		var draws []kernels.Draw
		if d != nil {
			for range n {
				draws = append(draws, *d)
			}
		}
		best := time.Hour
		for range 8 {
			_, s := r.step(n, true, draws)
			best = min(best, s.Ended-s.Started)
		}
		return best
	}
	none := kernels.Draw{On: true, TopP: 1, Logprobs: -1, Uniform: 0.6, Repetition: 1}
	edit := func(f func(d *kernels.Draw)) *kernels.Draw { d := none; f(&d); return &d }
	seen := make([]kernels.Seen, 1000)
	for i := range seen {
		seen[i] = kernels.Seen{ID: int32(100 * i), Count: 1}
	}
	for _, c := range []struct {
		what string
		d    *kernels.Draw
	}{
		{"largest", nil},
		{"temperature 1", edit(func(d *kernels.Draw) { d.Scale = 1 })},
		{"temperature 0.7, top_k 20, top_p 0.95", edit(func(d *kernels.Draw) { d.Scale, d.TopK, d.TopP = 1/0.7, 20, 0.95 })},
		{"temperature 0.25, top_p 0.95 (peaked)", edit(func(d *kernels.Draw) { d.Scale, d.TopP = 4, 0.95 })},
		{"temperature 1, top_p 0.95 (flat)", edit(func(d *kernels.Draw) { d.Scale, d.TopP = 1, 0.95 })},
		{"temperature 1, top_k 5000", edit(func(d *kernels.Draw) { d.Scale, d.TopK = 1, 5000 })},
		{"temperature 1, min_p 0.05", edit(func(d *kernels.Draw) { d.Scale, d.MinP = 1, 0.05 })},
		{"temperature 0, 20 log-probabilities", edit(func(d *kernels.Draw) { d.Logprobs = 20 })},
		{"temperature 1, penalties of 1000 tokens", edit(func(d *kernels.Draw) { d.Scale, d.Seen, d.Presence = 1, seen, 1 })},
	} {
		base1, base32, base128 := time1(1, nil), time1(32, nil), time1(128, nil)
		t.Logf("%-42s adds to a step of 1, 32, 128 rows: %6.1f %6.1f %6.1f µs (the largest alone takes %.1f, %.1f, %.1f)", c.what,
			us(time1(1, c.d)-base1), us(time1(32, c.d)-base32), us(time1(128, c.d)-base128), us(base1), us(base32), us(base128))
	}
}

func us(d time.Duration) float64 { return float64(d) / 1e3 }

// openFor opens a device that is closed when the test ends.
func openFor(t testing.TB) *Backend {
	t.Helper()
	opened, err := Open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
	return opened.(*Backend)
}
