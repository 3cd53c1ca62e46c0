package httpapi

import (
	"encoding/json"
	"encoding/json/jsontext"
	"errors"
	"math"
	"strconv"

	"waybill/actors"
)

// Limits on a request's fields; each is answered with a 400 that names it.
const (
	maxN         = 128  // outputs per prompt
	maxPrompts   = 1024 // prompts of a completions request
	maxStops     = 16   // stop strings
	maxStopLen   = 1024 // bytes of a stop string
	maxStopIDs   = 128
	maxLogitBias = 1024
	maxLogprobs  = 20 // alternatives per token
	maxMessages  = 4096
	maxJSONDepth = 64
	// maxJSONNames bounds the names of all objects of a body: each is remembered, with
	// some 100 bytes, to see whether it comes again.
	maxJSONNames  = 1 << 18
	maxModelChars = 256
)

// commonBody holds the fields that chat and plain completions share. Pointers
// and raw messages make an explicit null the same as an absent field.
type commonBody struct {
	Model             *string         `json:"model"`
	MaxTokens         *int            `json:"max_tokens"`
	N                 *int            `json:"n"`
	BestOf            *int            `json:"best_of"`
	Temperature       *float64        `json:"temperature"`
	TopP              *float64        `json:"top_p"`
	TopK              *int            `json:"top_k"`
	MinP              *float64        `json:"min_p"`
	RepetitionPenalty *float64        `json:"repetition_penalty"`
	PresencePenalty   *float64        `json:"presence_penalty"`
	FrequencyPenalty  *float64        `json:"frequency_penalty"`
	LogitBias         biasMap         `json:"logit_bias"`
	Seed              *int64          `json:"seed"`
	Stop              json.RawMessage `json:"stop"`
	StopTokenIDs      idList          `json:"stop_token_ids"`
	AllowedTokenIDs   idList          `json:"allowed_token_ids"`
	MinTokens         *int            `json:"min_tokens"`
	IgnoreEOS         *bool           `json:"ignore_eos"`
	IncludeStop       *bool           `json:"include_stop_str_in_output"`
	SkipSpecial       *bool           `json:"skip_special_tokens"`
	AddSpecialTokens  *bool           `json:"add_special_tokens"`
	Stream            *bool           `json:"stream"`
	StreamOptions     *streamOptions  `json:"stream_options"`
	ReturnTokenIDs    *bool           `json:"return_token_ids"`
	TokensAsIDs       *bool           `json:"return_tokens_as_token_ids"`
	PromptLogprobs    *int            `json:"prompt_logprobs"`
	Timings           *bool           `json:"timings"`
	RequestID         *string         `json:"request_id"`
	User              json.RawMessage `json:"user"`

	unsupported
}

// streamOptions ask for usage: once behind the last choice, or with every event.
type streamOptions struct {
	IncludeUsage    *bool `json:"include_usage"`
	ContinuousUsage *bool `json:"continuous_usage_stats"`
}

// sampling checks the sampling fields. defaults are the model's.
func (b *commonBody) sampling(o actors.SamplingOptions, vocab int) (actors.SamplingOptions, *apiError) {
	for _, f := range []struct {
		name     string
		in       *float64
		out      *float64
		low, top float64
	}{
		{"temperature", b.Temperature, &o.Temperature, 0, 2},
		{"top_p", b.TopP, &o.TopP, 0, 1},
		{"min_p", b.MinP, &o.MinP, 0, 1},
		{"repetition_penalty", b.RepetitionPenalty, &o.RepetitionPenalty, math.SmallestNonzeroFloat32, math.MaxFloat32},
		{"presence_penalty", b.PresencePenalty, &o.PresencePenalty, -2, 2},
		{"frequency_penalty", b.FrequencyPenalty, &o.FrequencyPenalty, -2, 2},
	} {
		if f.in == nil {
			continue
		}
		// Written so that NaN fails.
		if v := *f.in; !(v >= f.low && v <= f.top) {
			return o, badField(f.name, "%s must be between %v and %v, got %v", f.name, f.low, f.top, v)
		}
		*f.out = *f.in
	}
	if b.TopP != nil && *b.TopP == 0 {
		return o, badField("top_p", "top_p must be above 0 and at most 1, got 0")
	}
	if b.TopK != nil {
		if *b.TopK < -1 {
			return o, badField("top_k", "top_k must be -1 (off) or not negative, got %d", *b.TopK)
		}
		o.TopK = *b.TopK
	}
	if b.MinTokens != nil {
		if *b.MinTokens < 0 {
			return o, badField("min_tokens", "min_tokens must not be negative, got %d", *b.MinTokens)
		}
		o.MinTokens = *b.MinTokens
	}
	// A negative seed is as good as any: its bits are taken.
	o.Seed = actors.RandomSeed()
	if b.Seed != nil {
		o.Seed = uint64(*b.Seed)
	}
	if b.AllowedTokenIDs != nil {
		if len(b.AllowedTokenIDs) == 0 {
			return o, badField("allowed_token_ids", "allowed_token_ids is empty: no token could be chosen")
		}
		if n := len(b.AllowedTokenIDs); n > vocab {
			return o, badField("allowed_token_ids", "allowed_token_ids has %d ids; the vocabulary has %d", n, vocab)
		}
		if err := checkIDs("allowed_token_ids", b.AllowedTokenIDs, vocab); err != nil {
			return o, err
		}
		o.AllowedIDs = b.AllowedTokenIDs
	}
	return o, b.bias(&o, vocab)
}

// bias reads logit_bias: keys are token ids as strings.
func (b *commonBody) bias(o *actors.SamplingOptions, vocab int) *apiError {
	for k, v := range b.LogitBias {
		// Only the usual spelling of a number, lest "5" and "05" both name a token.
		id, err := strconv.ParseInt(k, 10, 32)
		if err != nil || strconv.FormatInt(id, 10) != k {
			return badField("logit_bias", "logit_bias has the key %q, which is not a token id", k)
		}
		if err := checkIDs("logit_bias", idList{int32(id)}, vocab); err != nil {
			return err
		}
		if v == nil || !(*v >= -100 && *v <= 100) {
			return badField("logit_bias", "logit_bias of token %s must be between -100 and 100", k)
		}
		o.LogitBias = append(o.LogitBias, actors.Bias{ID: int32(id), Value: float32(*v)})
	}
	actors.SortBias(o.LogitBias)
	return nil
}

// stops reads stop: a string or a list of strings.
func (b *commonBody) stops() ([]string, *apiError) {
	if len(b.Stop) == 0 || string(b.Stop) == "null" {
		return nil, nil
	}
	list := []string{}
	add := func(v jsontext.Value) error {
		var s string
		err := json.Unmarshal(v, &s)
		list = append(list, s)
		return err
	}
	var err error
	if b.Stop[0] == '[' {
		err = eachElement(b.Stop, maxStops, add)
	} else {
		err = add(jsontext.Value(b.Stop))
	}
	if errors.Is(err, errTooMany) {
		return nil, badField("stop", "stop has more than %d strings", maxStops)
	} else if err != nil {
		return nil, badField("stop", "stop must be a string or a list of strings")
	}
	for _, s := range list {
		if s == "" || len(s) > maxStopLen {
			return nil, badField("stop", "a stop string has %d bytes, must have 1 to %d", len(s), maxStopLen)
		}
	}
	return list, nil
}

// fill sets the fields of a request that both endpoints share.
func (b *commonBody) fill(r *actors.Request, e *actors.Engine, defaults actors.SamplingOptions) *apiError {
	if err := b.unsupported.check(); err != nil {
		return err
	}
	r.N = 1
	if b.N != nil {
		if *b.N < 1 || *b.N > maxN {
			return badField("n", "n must be between 1 and %d, got %d", maxN, *b.N)
		}
		r.N = *b.N
	}
	// Some clients send best_of: 1 with everything; more would need ranking.
	if b.BestOf != nil && *b.BestOf != r.N {
		return badField("best_of", "best_of is not supported unless it equals n (%d), got %d", r.N, *b.BestOf)
	}
	var err *apiError
	if r.Sampling, err = b.sampling(defaults, e.VocabSize()); err != nil {
		return err
	}
	if r.Stop, err = b.stops(); err != nil {
		return err
	}
	if len(b.StopTokenIDs) > maxStopIDs {
		return badField("stop_token_ids", "stop_token_ids has %d ids, limit %d", len(b.StopTokenIDs), maxStopIDs)
	}
	if err := checkIDs("stop_token_ids", b.StopTokenIDs, e.VocabSize()); err != nil {
		return err
	}
	r.StopIDs = b.StopTokenIDs
	r.IgnoreEOS = isTrue(b.IgnoreEOS)
	r.IncludeStop = isTrue(b.IncludeStop)
	r.KeepSpecial = b.SkipSpecial != nil && !*b.SkipSpecial
	r.Stream = isTrue(b.Stream)
	// Refused as OpenAI does: who sends it expects a stream.
	if !r.Stream && b.StreamOptions != nil {
		return badField("stream_options", "stream_options is only allowed with stream: true")
	}
	if b.PromptLogprobs != nil {
		if r.Stream {
			return badField("prompt_logprobs", "prompt_logprobs is not supported with stream: true")
		}
		if *b.PromptLogprobs < 0 || *b.PromptLogprobs > maxLogprobs {
			return badField("prompt_logprobs", "prompt_logprobs must be between 0 and %d, got %d", maxLogprobs, *b.PromptLogprobs)
		}
		r.PromptLogprobs, r.PromptTop = true, *b.PromptLogprobs
	}
	return nil
}

// checkIDs returns an error if an id is not in the vocabulary.
func checkIDs(param string, ids []int32, vocab int) *apiError {
	for _, id := range ids {
		if id < 0 || int(id) >= vocab {
			return badField(param, "%s holds the token id %d; the vocabulary has %d", param, id, vocab)
		}
	}
	return nil
}

func isTrue(b *bool) bool { return b != nil && *b }
