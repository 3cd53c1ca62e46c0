// Package sampling chooses the next token from a row of logits on the host. It is
// pure: the outcome depends on the row, the parameters and the sequence's own
// state, never on what else is in the batch. The meaning of every parameter, and
// the order in which they act, is vLLM's:
//
//	logprobs (of the raw logits) → allowed ids and mask → min_tokens → logit_bias
//	→ penalties → greedy, or: temperature → min_p → top_k → top_p → draw
package sampling

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"waybill/kernels"
)

// ErrInvalid is wrapped by every error about a parameter's value, which is the
// client's fault.
var ErrInvalid = errors.New("invalid sampling parameter")

const (
	// greedyBelow is the temperature below which the best token is taken.
	greedyBelow = 1e-5
	// minTemperature is what lower ones are raised to, lest dividing by them
	// overflow.
	minTemperature = 0.01
	// maxBias bounds a logit bias, as in OpenAI's API.
	maxBias = 100
	// MaxLogprobs is the most alternatives that a token can be reported with.
	MaxLogprobs = kernels.MaxLogprobs
	// NoLogprobs in Options.Logprobs asks for none at all.
	NoLogprobs = -1
)

// Bias is added to one token's logit.
type Bias struct {
	ID    int32
	Value float32
}

// Options holds parameters as a request gives them. Start from Defaults.
type Options struct {
	// Temperature divides the logits; 0 takes the best token.
	Temperature float64
	// TopK keeps the k best tokens and their equals; 0 and -1 keep all.
	TopK int
	// TopP keeps the best tokens that together reach this probability.
	TopP float64
	// MinP drops tokens less likely than this share of the likeliest.
	MinP float64
	// RepetitionPenalty divides positive and multiplies negative logits of the
	// tokens in prompt and output.
	RepetitionPenalty float64
	// PresencePenalty is taken off each token in the output, FrequencyPenalty
	// once for each time it occurs there.
	PresencePenalty, FrequencyPenalty float64
	// LogitBias is added to the logits named; values are cut to ±100.
	LogitBias []Bias
	// MinTokens is the number of output tokens before which StopIDs are banned.
	MinTokens int
	// StopIDs are the end and stop tokens of the request.
	StopIDs []int32
	// AllowedIDs, if not nil, are the only tokens that can be chosen.
	AllowedIDs []int32
	// Seed keys the random draws: one seed, one output, in any company. A request
	// without a seed gets one drawn by whoever makes the Options.
	Seed uint64
	// Logprobs is the number of alternatives reported with each token; 0 reports
	// the token's own, NoLogprobs nothing.
	Logprobs int
}

// Defaults returns vLLM's defaults for a request that says nothing.
func Defaults() Options {
	return Options{Temperature: 1, TopP: 1, RepetitionPenalty: 1, Logprobs: NoLogprobs}
}

// Params is a checked, immutable Options, shared by all that sample with it.
type Params struct {
	o         Options
	vocabSize int
	// temperature is 0 for greedy, else at least minTemperature.
	temperature float32
	topK        int
	minP        float32
	penalized   bool
	allowed     []uint64
	// stops are StopIDs, each once; twice tells that LogitBias names a token twice.
	stops  []int32
	twice  bool
	biases []kernels.Bias // LogitBias, for a device
}

// New checks o against a vocabulary of vocabSize tokens. Its errors wrap
// ErrInvalid.
func New(o Options, vocabSize int) (*Params, error) {
	if err := o.check(vocabSize); err != nil {
		return nil, fmt.Errorf("sampling: %w: %w", ErrInvalid, err)
	}
	o.LogitBias, o.StopIDs = slices.Clone(o.LogitBias), slices.Clone(o.StopIDs)
	for i := range o.LogitBias {
		o.LogitBias[i].Value = min(max(o.LogitBias[i].Value, -maxBias), maxBias)
	}
	p := &Params{o: o, vocabSize: vocabSize, topK: o.TopK, minP: float32(o.MinP)}
	p.stops = slices.Compact(slices.Sorted(slices.Values(o.StopIDs)))
	p.biases, p.twice = deviceBiases(o.LogitBias)
	if o.Temperature >= greedyBelow {
		p.temperature = float32(max(o.Temperature, minTemperature))
	}
	if o.TopK <= 0 || o.TopK >= vocabSize {
		p.topK = 0
	}
	p.penalized = o.RepetitionPenalty != 1 || o.PresencePenalty != 0 || o.FrequencyPenalty != 0
	if o.AllowedIDs != nil {
		p.allowed = make([]uint64, (vocabSize+63)/64)
		for _, id := range o.AllowedIDs {
			p.allowed[id/64] |= 1 << (id % 64)
		}
		if o.MinTokens > 0 && p.stopsOnly() {
			return nil, fmt.Errorf("sampling: %w: allowed_token_ids holds only end and stop tokens, which min_tokens bans", ErrInvalid)
		}
	}
	return p, nil
}

// WithSeed returns the same parameters with another seed. It costs a copy, where
// New checks every allowed id: the 128 outputs of one request differ in no more.
func (p *Params) WithSeed(seed uint64) *Params {
	q := *p
	q.o.Seed = seed
	return &q
}

// stopsOnly reports whether no token is allowed but end and stop tokens.
func (p *Params) stopsOnly() bool {
	rest := slices.Clone(p.allowed)
	for _, id := range p.o.StopIDs {
		rest[id/64] &^= 1 << (id % 64)
	}
	return !slices.ContainsFunc(rest, func(w uint64) bool { return w != 0 })
}

// Greedy tells whether the best token is taken.
func (p *Params) Greedy() bool { return p.temperature == 0 }

// TakesLargest tells whether a sequence's token number generated+1 is simply the
// largest of the raw logits and nothing is to be reported about it: then a device
// can choose it, and no logits need to cross to the host.
func (p *Params) TakesLargest(generated int) bool {
	return p.Greedy() && !p.penalized && p.allowed == nil && len(p.o.LogitBias) == 0 &&
		p.o.Logprobs == NoLogprobs && generated >= p.o.MinTokens
}

// Options returns what the parameters were made from.
func (p *Params) Options() Options { return p.o }

// filtered tells whether some tokens are cut off before the draw.
func (p *Params) filtered() bool { return p.topK > 0 || p.o.TopP < 1 || p.o.MinP > 0 }

func (o *Options) check(vocabSize int) error {
	ranges := []struct {
		name      string
		v, lo, hi float64
	}{
		{"temperature", o.Temperature, 0, math.MaxFloat32},
		{"top_p", o.TopP, math.SmallestNonzeroFloat64, 1},
		{"min_p", o.MinP, 0, 1},
		{"presence_penalty", o.PresencePenalty, -2, 2},
		{"frequency_penalty", o.FrequencyPenalty, -2, 2},
		{"repetition_penalty", o.RepetitionPenalty, math.SmallestNonzeroFloat32, math.MaxFloat32},
	}
	for _, r := range ranges {
		// Written so that NaN fails.
		if !(r.v >= r.lo && r.v <= r.hi) {
			return fmt.Errorf("%s is %g, expected %.3g to %.3g", r.name, r.v, r.lo, r.hi)
		}
	}
	if o.TopK < -1 {
		return fmt.Errorf("top_k is %d, expected at least -1", o.TopK)
	}
	if o.MinTokens < 0 {
		return fmt.Errorf("min_tokens is %d, expected at least 0", o.MinTokens)
	}
	if o.Logprobs < NoLogprobs || o.Logprobs > MaxLogprobs {
		return fmt.Errorf("logprobs is %d, expected 0 to %d", o.Logprobs, MaxLogprobs)
	}
	for _, b := range o.LogitBias {
		if math.IsNaN(float64(b.Value)) {
			return fmt.Errorf("logit_bias of token %d is not a number", b.ID)
		}
		if err := checkID("logit_bias", b.ID, vocabSize); err != nil {
			return err
		}
	}
	for _, id := range o.StopIDs {
		if err := checkID("stop_token_ids", id, vocabSize); err != nil {
			return err
		}
	}
	if o.AllowedIDs != nil && len(o.AllowedIDs) == 0 {
		return errors.New("allowed_token_ids is empty")
	}
	for _, id := range o.AllowedIDs {
		if err := checkID("allowed_token_ids", id, vocabSize); err != nil {
			return err
		}
	}
	return nil
}

func checkID(what string, id int32, vocabSize int) error {
	if id < 0 || int(id) >= vocabSize {
		return fmt.Errorf("%s names token %d, expected 0 to %d", what, id, vocabSize-1)
	}
	return nil
}
