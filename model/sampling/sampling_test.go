package sampling

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"
)

// options returns Defaults changed by edit.
func options(edit func(o *Options)) Options {
	o := Defaults()
	edit(&o)
	return o
}

func params(t testing.TB, vocabSize int, edit func(o *Options)) *Params {
	t.Helper()
	p, err := New(options(edit), vocabSize)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func sample(t testing.TB, row []float32, p *Params, s *State) Result {
	t.Helper()
	r, err := NewSampler(len(row)).Sample(slices.Clone(row), p, s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// after returns a state with this prompt and output.
func after(p *Params, prompt, output []int32) *State {
	s := NewState(p, prompt)
	for _, id := range output {
		s.Append(id)
	}
	return s
}

func randomRow(seed uint64, n int) []float32 {
	r := rand.New(rand.NewPCG(seed, 1))
	row := make([]float32, n)
	for i := range row {
		row[i] = float32(r.NormFloat64() * 3)
	}
	return row
}

// distribution is what the parameters mean, computed plainly in float64: the
// probability of each token after every cut.
func distribution(row []float32, p *Params, s *State) []float64 {
	o := p.o
	x := make([]float64, len(row))
	for i := range row {
		x[i] = float64(row[i])
		if o.AllowedIDs != nil && !slices.Contains(o.AllowedIDs, int32(i)) {
			x[i] = math.Inf(-1)
		}
	}
	if s.numOutput < o.MinTokens {
		for _, id := range o.StopIDs {
			x[id] = math.Inf(-1)
		}
	}
	for _, b := range o.LogitBias {
		x[b.ID] += float64(b.Value)
	}
	for _, t := range s.seen {
		if x[t.ID] > 0 {
			x[t.ID] /= o.RepetitionPenalty
		} else {
			x[t.ID] *= o.RepetitionPenalty
		}
		x[t.ID] -= o.FrequencyPenalty * float64(t.Count)
		if t.Count > 0 {
			x[t.ID] -= o.PresencePenalty
		}
	}
	for i := range x {
		x[i] /= max(o.Temperature, minTemperature)
	}
	probs := softmax(x)
	most := slices.Max(probs)
	for i := range x {
		if probs[i] < o.MinP*most {
			x[i] = math.Inf(-1)
		}
	}
	if o.TopK > 0 && o.TopK < len(x) {
		sorted := slices.Clone(x)
		sort.Sort(sort.Reverse(sort.Float64Slice(sorted)))
		for i := range x {
			if x[i] < sorted[o.TopK-1] {
				x[i] = math.Inf(-1)
			}
		}
	}
	probs = softmax(x)
	order := make([]int, len(x))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { return probs[order[a]] > probs[order[b]] })
	before := 0.0
	for _, i := range order {
		if before >= o.TopP {
			x[i] = math.Inf(-1)
		}
		before += probs[i]
	}
	return softmax(x)
}

func softmax(x []float64) []float64 {
	top, total := slices.Max(x), 0.0
	out := make([]float64, len(x))
	for i := range x {
		out[i] = math.Exp(x[i] - top)
		total += out[i]
	}
	for i := range out {
		out[i] /= total
	}
	return out
}

// TestDrawsFollowTheDistribution draws 40,000 tokens for each set of parameters
// and compares counts with the plain distribution by a chi-square test. Seeds are
// fixed, so the test either always passes or always fails.
func TestDrawsFollowTheDistribution(t *testing.T) {
	const vocab, draws = 200, 40000
	cases := map[string]func(o *Options){
		"plain":             func(o *Options) {},
		"temperature 0.7":   func(o *Options) { o.Temperature = 0.7 },
		"temperature 2":     func(o *Options) { o.Temperature = 2 },
		"top_k":             func(o *Options) { o.TopK = 7 },
		"top_k 1":           func(o *Options) { o.TopK = 1 },
		"top_p":             func(o *Options) { o.TopP = 0.8 },
		"top_p tiny":        func(o *Options) { o.TopP = 1e-6 },
		"min_p":             func(o *Options) { o.MinP = 0.1 },
		"min_p 1":           func(o *Options) { o.MinP = 1 },
		"all cuts":          func(o *Options) { o.TopK, o.TopP, o.MinP, o.Temperature = 40, 0.9, 0.02, 1.5 },
		"bias":              func(o *Options) { o.LogitBias = []Bias{{3, 5}, {9, -100}, {11, 2.5}} },
		"allowed":           func(o *Options) { o.AllowedIDs = []int32{0, 5, 63, 64, 130, 199} },
		"penalties":         func(o *Options) { o.RepetitionPenalty, o.PresencePenalty, o.FrequencyPenalty = 1.3, 0.5, 0.25 },
		"negative":          func(o *Options) { o.RepetitionPenalty, o.PresencePenalty, o.FrequencyPenalty = 0.8, -0.5, -0.25 },
		"min_tokens":        func(o *Options) { o.MinTokens, o.StopIDs = 50000, []int32{1, 2, 3} },
		"cuts on penalties": func(o *Options) { o.RepetitionPenalty, o.TopP, o.TopK = 2, 0.7, 30 },
	}
	row := randomRow(1, vocab)
	for name, edit := range cases {
		t.Run(name, func(t *testing.T) {
			p := params(t, vocab, func(o *Options) { edit(o); o.Seed = 7 })
			s := after(p, []int32{1, 2, 3, 50}, []int32{3, 4, 4, 4, 60})
			want := distribution(row, p, s)
			m, counts, work := NewSampler(vocab), make([]int, vocab), make([]float32, vocab)
			for i := range draws {
				copy(work, row)
				// Another draw of the same distribution: only the index moves.
				s.numOutput = 5 + i
				r, err := m.Sample(work, p, s)
				if err != nil {
					t.Fatal(err)
				}
				counts[r.Token]++
			}
			checkCounts(t, counts, want, draws)
		})
	}
}

// checkCounts is a chi-square test at about five standard deviations. Tokens that
// are expected less than ten times share a cell.
func checkCounts(t *testing.T, counts []int, want []float64, draws int) {
	t.Helper()
	chi, cells, restCount, restWant := 0.0, 0, 0.0, 0.0
	for i, c := range counts {
		if want[i] == 0 && c > 0 {
			t.Errorf("token %d was drawn %d times, its probability is 0", i, c)
		}
		e := want[i] * float64(draws)
		if e < 10 {
			restCount, restWant = restCount+float64(c), restWant+e
			continue
		}
		chi += (float64(c) - e) * (float64(c) - e) / e
		cells++
	}
	if restWant >= 1 {
		chi += (restCount - restWant) * (restCount - restWant) / restWant
		cells++
	}
	free := float64(cells - 1)
	if limit := free + 5*math.Sqrt(2*free) + 10; chi > limit {
		t.Errorf("chi-square %.1f with %d cells, want below %.1f", chi, cells, limit)
	}
}

func TestUniformIsUniformOverSeedsAndIndices(t *testing.T) {
	const cells, draws = 64, 64000
	want := make([]float64, cells)
	for i := range want {
		want[i] = 1.0 / cells
	}
	bySeed, byIndex, pairs := make([]int, cells), make([]int, cells), make([]int, cells)
	for i := range draws {
		bySeed[int(uniform(uint64(i), 0)*cells)]++
		byIndex[int(uniform(1, i)*cells)]++
		// Neighbouring draws of one seed must not hang together.
		pairs[int(uniform(2, i)*8)*8+int(uniform(2, i+1)*8)]++
	}
	checkCounts(t, bySeed, want, draws)
	checkCounts(t, byIndex, want, draws)
	checkCounts(t, pairs, want, draws)
}

func TestExpIsAccurate(t *testing.T) {
	var src []float32
	for x := float32(0); x > -87.3; x -= 0.00173 {
		src = append(src, x)
	}
	src = append(src, -88, banned)
	dst := make([]float32, len(src))
	sum, total, worst := expSum(dst, src, 0, 1), 0.0, 0.0
	for i, x := range src[:len(src)-2] {
		want := math.Exp(float64(x))
		total += want
		worst = max(worst, math.Abs(float64(dst[i])-want)/want)
	}
	if worst > 3e-7 || math.Abs(sum-total)/total > 3e-7 {
		t.Errorf("relative error %g, sum %g, want below 3e-7 and %g", worst, sum, total)
	}
	if dst[0] != 1 || dst[len(dst)-2] != 0 || dst[len(dst)-1] != 0 {
		t.Errorf("of 0, -88 and -inf: %g, %g, %g", dst[0], dst[len(dst)-2], dst[len(dst)-1])
	}
	if expSum(dst, []float32{3, 5}, 5, 2); math.Abs(float64(dst[0])-math.Exp(-4)) > 1e-8 || dst[1] != 1 {
		t.Errorf("of 3 and 5, best 5, scale 2: got %g and %g", dst[0], dst[1])
	}
}

func TestGreedyTakesTheLowestOfEqualTokens(t *testing.T) {
	row := []float32{1, 5, 3, 5, 5, 0, 5}
	for _, temperature := range []float64{0, 1e-6} {
		p := params(t, len(row), func(o *Options) { o.Temperature, o.TopK, o.TopP = temperature, 3, 0.5 })
		if got := sample(t, row, p, NewState(p, nil)).Token; got != 1 || !p.Greedy() {
			t.Errorf("temperature %g: got %d, want 1", temperature, got)
		}
	}
	// Every position can win, also in the tail that is not a multiple of four.
	for i := range row {
		row := make([]float32, len(row))
		row[i] = 1
		p := params(t, len(row), func(o *Options) { o.Temperature = 0 })
		if got := sample(t, row, p, NewState(p, nil)).Token; got != int32(i) {
			t.Errorf("best at %d: got %d", i, got)
		}
	}
}

func TestLowTemperatureIsRaisedNotDividedBy(t *testing.T) {
	p := params(t, 2, func(o *Options) { o.Temperature = 2e-5 })
	// At 0.01 a difference of 0.01 leaves the second e times less likely.
	counts := make([]int, 2)
	for i := range 2000 {
		s := NewState(p, nil)
		s.numOutput = i
		counts[sample(t, []float32{1, 0.99}, p, s).Token]++
	}
	if counts[1] < 440 || counts[1] > 640 {
		t.Errorf("second token %d of 2000, want about 538", counts[1])
	}
}

// TestTopKKeepsEquals and the next hold the corners where implementations differ.
func TestTopKKeepsEquals(t *testing.T) {
	row := []float32{2, 1, 2, 2, 0}
	p := params(t, len(row), func(o *Options) { o.TopK = 2 })
	seen := map[int32]bool{}
	for i := range 200 {
		s := NewState(p, nil)
		s.numOutput = i
		seen[sample(t, row, p, s).Token] = true
	}
	if len(seen) != 3 || !seen[0] || !seen[2] || !seen[3] {
		t.Errorf("drawn %v, want 0, 2 and 3: all that equal the second best", seen)
	}
}

func TestTopPOfEqualTokensKeepsTheLowestIDs(t *testing.T) {
	row := make([]float32, 10)
	p := params(t, len(row), func(o *Options) { o.TopP = 0.45 })
	seen := map[int32]bool{}
	for i := range 500 {
		s := NewState(p, nil)
		s.numOutput = i
		seen[sample(t, row, p, s).Token] = true
	}
	// Four reach 0.4, the fifth crosses 0.45.
	for id := range int32(10) {
		if seen[id] != (id < 5) {
			t.Errorf("token %d drawn: %v, want %v", id, seen[id], id < 5)
		}
	}
}

func TestPenaltiesActAsVLLMs(t *testing.T) {
	row := []float32{2, -2, 3, 1, -1, 0.5}
	p := params(t, len(row), func(o *Options) {
		o.RepetitionPenalty, o.PresencePenalty, o.FrequencyPenalty = 2, 0.5, 0.25
	})
	s := after(p, []int32{0, 1, 1, 0}, []int32{1, 2, 2, 4})
	got := slices.Clone(row)
	p.process(got, s)
	want := []float32{
		1,                  // prompt only: divided
		-4 - 0.5 - 0.25,    // negative: multiplied; once in the output
		1.5 - 0.5 - 2*0.25, // twice in the output
		1,                  // untouched
		-2 - 0.5 - 0.25,    // negative, output only
		0.5,                // untouched
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	// Without a repetition penalty the prompt does not count.
	p = params(t, len(row), func(o *Options) { o.PresencePenalty = 1 })
	got = slices.Clone(row)
	p.process(got, after(p, []int32{0, 1}, []int32{2}))
	if want := []float32{2, -2, 2, 1, -1, 0.5}; !slices.Equal(got, want) {
		t.Errorf("presence alone: got %v, want %v", got, want)
	}
}

// A penalty at the end of its range neither bans a token that is allowed nor allows
// one that is banned.
func TestExtremePenaltiesLeaveWhatIsAllowed(t *testing.T) {
	for _, temperature := range []float64{0, 0.5, 1} {
		for _, c := range []struct {
			penalty float64
			allowed []int32
			row     []float32
			want    []int32
		}{
			{math.MaxFloat32, []int32{1}, []float32{3, -90, 5}, []int32{1}},
			{math.MaxFloat32, []int32{0, 1}, []float32{-3, -90, 5}, []int32{0, 1}},
			{math.SmallestNonzeroFloat32, []int32{0, 1}, []float32{-3, 90, 5}, []int32{1}},
			{math.SmallestNonzeroFloat32, []int32{0, 1}, []float32{3, 90, 5}, []int32{0, 1}},
			{math.SmallestNonzeroFloat32, []int32{1}, []float32{3, -90, 5}, []int32{1}},
		} {
			p := params(t, len(c.row), func(o *Options) {
				o.Temperature, o.RepetitionPenalty, o.AllowedIDs, o.FrequencyPenalty = temperature, c.penalty, c.allowed, 2
			})
			r, err := NewSampler(len(c.row)).Sample(slices.Clone(c.row), p, after(p, []int32{0, 1, 2}, []int32{1, 1}))
			if err != nil || !slices.Contains(c.want, r.Token) {
				t.Errorf("temperature %v, penalty %v, allowed %v of %v: got %d, %v, want one of %d", temperature, c.penalty, c.allowed, c.row, r.Token, err, c.want)
			}
		}
	}
}

func TestMinTokensBansStopsUntilReached(t *testing.T) {
	row := []float32{1, 9, 8, 0}
	p := params(t, len(row), func(o *Options) { o.Temperature, o.MinTokens, o.StopIDs = 0, 2, []int32{1, 2} })
	s := NewState(p, nil)
	for i, want := range []int32{0, 0, 1} {
		if got := sample(t, row, p, s).Token; got != want {
			t.Errorf("token %d: got %d, want %d", i, got, want)
		}
		s.Append(0)
	}
}

func TestBiasIsCutAndCanForceOrForbid(t *testing.T) {
	row := []float32{1, 9, 8, 0}
	p := params(t, len(row), func(o *Options) { o.Temperature, o.LogitBias = 0, []Bias{{1, -1e6}, {3, 1e6}} })
	got := slices.Clone(row)
	p.process(got, NewState(p, nil))
	if want := []float32{1, -91, 8, 100}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestMaskAndAllowedIDsBothHold(t *testing.T) {
	row := randomRow(3, 200)
	row[130], row[64], row[5] = 50, 40, 30
	p := params(t, len(row), func(o *Options) { o.AllowedIDs = []int32{5, 64, 130} })
	s := NewState(p, nil)
	s.Mask = []uint64{math.MaxUint64, 1 << 0} // 0 to 64; what a short mask leaves out is banned
	if got := sample(t, row, p, s).Token; got != 64 {
		t.Errorf("got %d, want 64: 130 is allowed but masked", got)
	}
	s.Mask = []uint64{1 << 7}
	_, err := NewSampler(len(row)).Sample(row, p, s)
	if !errors.Is(err, ErrNothingAllowed) {
		t.Errorf("nothing in common: got %v", err)
	}
}

func TestNotFiniteIsAnErrorOfThatRowOnly(t *testing.T) {
	m := NewSampler(9)
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		for at := range 9 {
			for _, temperature := range []float64{0, 1} {
				p := params(t, 9, func(o *Options) { o.Temperature = temperature })
				row := make([]float32, 9)
				row[at] = bad
				if _, err := m.Sample(row, p, NewState(p, nil)); !errors.Is(err, ErrNotFinite) {
					t.Errorf("%g at %d: got %v", bad, at, err)
				}
				if _, err := m.Sample(make([]float32, 9), p, NewState(p, nil)); err != nil {
					t.Errorf("the row after it: %v", err)
				}
			}
		}
	}
	if _, err := m.Logprobs([]float32{0, float32(math.NaN())}, 0, 1); !errors.Is(err, ErrNotFinite) {
		t.Errorf("prompt logprobs: got %v", err)
	}
}

// TestSeedIsAllThatMatters: one output for one seed, whatever the Sampler did
// before, and different outputs for different seeds.
func TestSeedIsAllThatMatters(t *testing.T) {
	const vocab, n = 3000, 50
	run := func(m *Sampler, seed uint64, edit func(o *Options), disturb bool) []int32 {
		p := params(t, vocab, func(o *Options) { edit(o); o.Seed = seed })
		other := params(t, vocab, func(o *Options) { o.TopP, o.Logprobs = 0.5, 5 })
		s := NewState(p, []int32{1, 2})
		for i := range n {
			if disturb {
				m.Sample(randomRow(uint64(1000+i), vocab), other, NewState(other, nil))
			}
			r, err := m.Sample(randomRow(uint64(i), vocab), p, s)
			if err != nil {
				t.Fatal(err)
			}
			s.Append(r.Token)
		}
		var out []int32
		for _, x := range s.seen {
			out = append(out, x.ID)
		}
		return out
	}
	for name, edit := range map[string]func(o *Options){
		"plain": func(o *Options) { o.PresencePenalty = 0.1 },
		"cuts":  func(o *Options) { o.PresencePenalty, o.TopK, o.TopP = 0.1, 50, 0.9 },
	} {
		alone := run(NewSampler(vocab), 42, edit, false)
		if got := run(NewSampler(vocab), 42, edit, true); !slices.Equal(got, alone) {
			t.Errorf("%s: in company\n got %v\nwant %v", name, got, alone)
		}
		if got := run(NewSampler(vocab), 43, edit, false); slices.Equal(got, alone) {
			t.Errorf("%s: another seed gives the same output", name)
		}
	}
}

func TestLogprobsAreOfTheRawLogits(t *testing.T) {
	const vocab = 500
	row := randomRow(9, vocab)
	row[7], row[3] = row[11], row[11] // equals are listed by id
	x := make([]float64, vocab)
	for i := range row {
		x[i] = float64(row[i])
	}
	probs := softmax(x)
	order := make([]int, vocab)
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { return row[order[a]] > row[order[b]] })
	// A bias and a temperature change what is chosen, not what is reported.
	p := params(t, vocab, func(o *Options) { o.Temperature, o.LogitBias, o.Logprobs = 0.5, []Bias{{3, 100}}, vocab })
	r := sample(t, row, p, NewState(p, nil))
	if r.Token != 3 || math.Abs(float64(r.Logprob)-math.Log(probs[3])) > 1e-5 {
		t.Errorf("got token %d, log-probability %g, want 3, %g", r.Token, r.Logprob, math.Log(probs[3]))
	}
	rank := 0
	for i := range row {
		if row[i] >= row[3] {
			rank++
		}
	}
	if r.Rank != rank {
		t.Errorf("rank: got %d, want %d", r.Rank, rank)
	}
	for i, top := range r.Top {
		if int(top.ID) != order[i] || math.Abs(float64(top.Logprob)-math.Log(probs[top.ID])) > 1e-5 {
			t.Fatalf("top %d: got %+v, want token %d with %g", i, top, order[i], math.Log(probs[order[i]]))
		}
	}
	if len(r.Top) != vocab {
		t.Errorf("%d alternatives, want %d", len(r.Top), vocab)
	}
	p = params(t, vocab, func(o *Options) { o.Temperature, o.Logprobs = 0, 0 })
	if r := sample(t, row, p, NewState(p, nil)); len(r.Top) != 0 || r.Rank != 1 || r.Logprob >= 0 {
		t.Errorf("logprobs 0: got %+v, want the token's own alone", r)
	}
	if r, err := NewSampler(vocab).Logprobs(slices.Clone(row), int32(order[4]), 2); err != nil || r.Rank != 5 || int(r.Top[1].ID) != order[1] {
		t.Errorf("of a prompt token: got %+v, %v", r, err)
	}
}

func TestWrongParametersAreNamed(t *testing.T) {
	nan := math.NaN()
	cases := map[string]func(o *Options){
		"temperature is -1":          func(o *Options) { o.Temperature = -1 },
		"temperature is NaN":         func(o *Options) { o.Temperature = nan },
		"temperature is +Inf":        func(o *Options) { o.Temperature = math.Inf(1) },
		"top_p is 0":                 func(o *Options) { o.TopP = 0 },
		"top_p is 1.1":               func(o *Options) { o.TopP = 1.1 },
		"top_k is -2":                func(o *Options) { o.TopK = -2 },
		"min_p is NaN":               func(o *Options) { o.MinP = nan },
		"presence_penalty is 2.5":    func(o *Options) { o.PresencePenalty = 2.5 },
		"frequency_penalty is -3":    func(o *Options) { o.FrequencyPenalty = -3 },
		"repetition_penalty is 0":    func(o *Options) { o.RepetitionPenalty = 0 },
		"min_tokens is -1":           func(o *Options) { o.MinTokens = -1 },
		"logprobs is -2":             func(o *Options) { o.Logprobs = -2 },
		"logprobs is 5000":           func(o *Options) { o.Logprobs = 5000 },
		"logit_bias names token 9":   func(o *Options) { o.LogitBias = []Bias{{9, 1}} },
		"logit_bias of token 1":      func(o *Options) { o.LogitBias = []Bias{{1, float32(nan)}} },
		"stop_token_ids names":       func(o *Options) { o.StopIDs = []int32{-1} },
		"allowed_token_ids is empty": func(o *Options) { o.AllowedIDs = []int32{} },
		"allowed_token_ids names":    func(o *Options) { o.AllowedIDs = []int32{9} },
		"which min_tokens bans":      func(o *Options) { o.AllowedIDs, o.StopIDs, o.MinTokens = []int32{2, 5, 2}, []int32{5, 1, 2}, 1 },
	}
	for want, edit := range cases {
		_, err := New(options(edit), 9)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want ErrInvalid with %q", err, want)
		}
	}
	// Not wrong: a stop token may be the only one where nothing bans it, and one
	// other is enough.
	params(t, 9, func(o *Options) { o.AllowedIDs, o.StopIDs = []int32{2}, []int32{2} })
	params(t, 9, func(o *Options) { o.AllowedIDs, o.StopIDs, o.MinTokens = []int32{2, 8}, []int32{2}, 1 })
	for _, k := range []int{-1, 0, 9, 100} {
		if p := params(t, 9, func(o *Options) { o.TopK = k }); p.filtered() {
			t.Errorf("top_k %d cuts off something", k)
		}
	}
}

func TestSampleDoesNotAllocate(t *testing.T) {
	const vocab = 5000
	row, work := randomRow(1, vocab), make([]float32, vocab)
	for name, edit := range map[string]func(o *Options){
		"greedy":      func(o *Options) { o.Temperature = 0 },
		"temperature": func(o *Options) {},
		"cuts":        func(o *Options) { o.TopK, o.TopP, o.MinP = 50, 0.9, 0.01 },
		"all":         func(o *Options) { o.TopP, o.RepetitionPenalty, o.Logprobs = 0.9, 1.1, 20 },
	} {
		p := params(t, vocab, edit)
		s, m := after(p, []int32{1, 2, 3}, []int32{4}), NewSampler(vocab)
		n := testing.AllocsPerRun(50, func() {
			copy(work, row)
			if _, err := m.Sample(work, p, s); err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %g allocations a token, want 0", name, n)
		}
	}
}

func BenchmarkSample(b *testing.B) {
	const vocab = 49152
	row, work := randomRow(1, vocab), make([]float32, vocab)
	for _, c := range []struct {
		name string
		edit func(o *Options)
	}{
		{"copy", nil},
		{"greedy", func(o *Options) { o.Temperature = 0 }},
		{"temperature", func(o *Options) {}},
		{"top_k_top_p", func(o *Options) { o.TopK, o.TopP, o.Temperature = 20, 0.95, 0.6 }},
		{"top_p", func(o *Options) { o.TopP = 0.95 }},
		{"logprobs", func(o *Options) { o.Temperature, o.Logprobs = 0, 5 }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			if c.edit == nil {
				for b.Loop() {
					copy(work, row)
				}
				return
			}
			p := params(b, vocab, c.edit)
			s, m := NewState(p, nil), NewSampler(vocab)
			for b.Loop() {
				copy(work, row)
				if _, err := m.Sample(work, p, s); err != nil {
					b.Fatal(err)
				}
				s.Append(0)
			}
		})
	}
}
