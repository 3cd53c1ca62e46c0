package sampling

import (
	"errors"
	"fmt"
	"math"

	"waybill/kernels"
)

var (
	// ErrNotFinite is returned for a row of logits with a NaN or an infinity: the
	// model or its weights are broken, for this sequence at least.
	ErrNotFinite = errors.New("logits are not finite")
	// ErrNothingAllowed is returned where mask, allowed ids and min_tokens leave
	// no token to choose.
	ErrNothingAllowed = errors.New("no token is allowed")
)

// TokenLogprob is a token with the logarithm of its probability.
type TokenLogprob = kernels.TokenLogprob

// Result is the outcome for one row.
type Result struct {
	// Token is the token chosen.
	Token int32
	// Logprob is its log-probability under the raw logits, Rank its place among
	// all tokens there, from 1. Both are 0 unless logprobs were asked for.
	Logprob float32
	Rank    int
	// Top holds the best tokens under the raw logits, best first. The slice
	// belongs to the Sampler and holds until its next call.
	Top []TokenLogprob
}

// Sampler holds the working memory for sampling one row at a time. It belongs to
// one goroutine.
type Sampler struct {
	raw       []float32 // the row before anything was applied, for logprobs
	probs     []float32 // unnormalised
	sums      []float64 // of probs, by blocks of sumBlock
	best      []candidate
	ids       []int32
	survivors []candidate
	top       []TokenLogprob
}

// sumBlock is how many probabilities share a partial sum. The draw walks the sums
// first and then one block: 49,152 entries take 48 + 1,024 steps at most.
const sumBlock = 1024

// NewSampler returns working memory for rows of vocabSize logits.
func NewSampler(vocabSize int) *Sampler {
	return &Sampler{
		probs: make([]float32, vocabSize),
		sums:  make([]float64, (vocabSize+sumBlock-1)/sumBlock),
	}
}

// Sample chooses the next token of a sequence from row, which it overwrites. It
// does not append the token to s: a step may yet be dropped. An error is about
// this row alone. It allocates nothing once the Sampler has seen the options in
// use.
func (m *Sampler) Sample(row []float32, p *Params, s *State) (Result, error) {
	if len(row) != p.vocabSize || len(row) > len(m.probs) {
		panic(fmt.Sprintf("BUG: sampling: row of %d logits, parameters for %d, memory for %d", len(row), p.vocabSize, len(m.probs)))
	}
	bestID, ok := argmax(row)
	if !ok {
		return Result{}, fmt.Errorf("sampling: token %d of the output: %w", s.numOutput, ErrNotFinite)
	}
	if p.o.Logprobs >= 0 {
		m.raw = append(m.raw[:0], row...)
	}
	if p.changesBest(s) {
		p.process(row, s)
		bestID, _ = argmax(row)
	}
	best := row[bestID]
	if best == banned {
		return Result{}, fmt.Errorf("sampling: token %d of the output: %w", s.numOutput, ErrNothingAllowed)
	}
	r := Result{Token: bestID}
	if !p.Greedy() {
		u := uniform(p.o.Seed, s.numOutput)
		if p.filtered() {
			r.Token = m.drawFiltered(row, best, p, u)
		} else {
			r.Token = m.draw(row, best, p.temperature, u)
		}
	}
	if p.o.Logprobs >= 0 {
		m.logprobs(m.raw, &r, p.o.Logprobs)
	}
	return r, nil
}

// changesBest tells whether process would do anything.
func (p *Params) changesBest(s *State) bool {
	return p.penalized || p.allowed != nil || s.Mask != nil || len(p.o.LogitBias) > 0 ||
		s.numOutput < p.o.MinTokens && len(p.o.StopIDs) > 0
}

// argmax returns the index of the largest value, the lowest of equal ones. It is
// not ok if any value is NaN or infinite.
func argmax(row []float32) (best int32, ok bool) {
	top, at := row[0], 0
	// A finite number times zero is zero; anything else leaves a NaN behind. Four
	// sums, since each would wait for its predecessor.
	var z0, z1, z2, z3 float32
	i := 0
	for ; i+4 <= len(row); i += 4 {
		x := row[i : i+4 : i+4]
		z0 += x[0] * 0
		z1 += x[1] * 0
		z2 += x[2] * 0
		z3 += x[3] * 0
		if x[0] > top {
			top, at = x[0], i
		}
		if x[1] > top {
			top, at = x[1], i+1
		}
		if x[2] > top {
			top, at = x[2], i+2
		}
		if x[3] > top {
			top, at = x[3], i+3
		}
	}
	for ; i < len(row); i++ {
		z0 += row[i] * 0
		if row[i] > top {
			top, at = row[i], i
		}
	}
	return int32(at), z0+z1+z2+z3 == 0
}

// draw picks from the whole vocabulary: the first token at which the cumulated
// probability, in the order of ids, exceeds u.
func (m *Sampler) draw(row []float32, best, temperature float32, u float64) int32 {
	scale := 1 / temperature
	probs := m.probs[:len(row)]
	total := 0.0
	for from := 0; from < len(row); from += sumBlock {
		to := min(from+sumBlock, len(row))
		sum := expSum(probs[from:to], row[from:to], best, scale)
		m.sums[from/sumBlock] = sum
		total += sum
	}
	left := u * total
	b := 0
	for ; (b+1)*sumBlock < len(row) && left >= m.sums[b]; b++ {
		left -= m.sums[b]
	}
	last := int32(b * sumBlock)
	for i := b * sumBlock; i < min((b+1)*sumBlock, len(row)); i++ {
		if probs[i] == 0 {
			continue
		}
		last = int32(i)
		if left -= float64(probs[i]); left < 0 {
			break
		}
	}
	// Rounding may leave a last crumb of u: the last possible token gets it. In a
	// block without any, that is the best token.
	if probs[last] == 0 {
		return argmaxOf(row)
	}
	return last
}

func argmaxOf(row []float32) int32 {
	id, _ := argmax(row)
	return id
}

// logprobs fills in r's log-probabilities from the raw logits.
func (m *Sampler) logprobs(raw []float32, r *Result, n int) {
	bestID, _ := argmax(raw)
	best := raw[bestID]
	norm := best + float32(math.Log(expSum(m.probs[:len(raw)], raw, best, 1)))
	chosen := raw[r.Token]
	r.Logprob = chosen - norm
	for _, x := range raw {
		if x >= chosen {
			r.Rank++
		}
	}
	m.top = m.top[:0]
	for _, c := range m.largest(raw, n) {
		m.top = append(m.top, TokenLogprob{ID: c.id, Logprob: c.value - norm})
	}
	r.Top = m.top
}

// Logprobs reports the log-probability of token under row, and the n best tokens,
// without choosing anything: for the tokens of a prompt.
func (m *Sampler) Logprobs(row []float32, token int32, n int) (Result, error) {
	if _, ok := argmax(row); !ok {
		return Result{}, fmt.Errorf("sampling: prompt token %d: %w", token, ErrNotFinite)
	}
	r := Result{Token: token}
	m.logprobs(row, &r, n)
	return r, nil
}
