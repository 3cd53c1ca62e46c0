package actors

import (
	"math/rand/v2"
	"sort"
	"sync/atomic"

	"waybill/actors/waybill"
	"waybill/model/sampling"
	"waybill/model/tokenizer"
)

// Names of model that requests are made of; httpapi builds them without
// importing model.
type (
	// SamplingOptions are a request's sampling parameters.
	SamplingOptions = sampling.Options
	// Bias is added to one token's logit.
	Bias = sampling.Bias
	// TokenLogprob is one alternative of a sampled token.
	TokenLogprob = sampling.TokenLogprob
	// Span is a byte range of a rendered prompt.
	Span = tokenizer.Span
	// EncodeOptions say what tokenization adds and recognises.
	EncodeOptions = tokenizer.EncodeOptions
)

// NoLogprobs in SamplingOptions.Logprobs asks for none.
const NoLogprobs = sampling.NoLogprobs

// RandomSeed returns a seed for a request that brings none.
func RandomSeed() uint64 { return rand.Uint64() }

// DefaultSampling returns the parameters of a request that says nothing.
func DefaultSampling() SamplingOptions { return sampling.Defaults() }

// SortBias orders biases by token, so that equal requests are equal.
func SortBias(b []Bias) { sort.Slice(b, func(i, j int) bool { return b[i].ID < b[j].ID }) }

// Prompt is one prompt of a request: text, ids, or something to be rendered.
type Prompt struct {
	// Text is tokenized with Encode unless IDs or Render is set.
	Text string
	// IDs are taken as they are.
	IDs []int32
	// Render makes the text, with the byte ranges in which no control token may
	// be recognised. It runs on Intake's goroutine and ends early once over returns
	// true. Its error is the client's.
	Render func(over func() bool) (text string, plain []Span, err error)
	// Encode says how text is tokenized.
	Encode EncodeOptions
}

// Request is a client's request on its way. httpapi fills it and hands it to
// Submit; then it is read-only except for the fields that say who writes them.
type Request struct {
	// RID is the request's id as clients and dump lines see it.
	RID string
	// Prompts and N give len(Prompts)*N sequences.
	Prompts []Prompt
	// N is the number of outputs for each prompt.
	N int
	// Sampling holds the parameters of all sequences but StopIDs and Seed, which
	// the engine completes: sequence i draws with Seed+i.
	Sampling SamplingOptions
	// MaxTokens bounds the output; negative means as much as the context allows.
	// FitMaxTokens lowers it to that instead of refusing the request.
	MaxTokens    int
	FitMaxTokens bool
	// IgnoreEOS goes on behind end-of-sequence.
	IgnoreEOS bool
	// StopIDs end the output besides end-of-sequence.
	StopIDs []int32
	// Stop are strings that end the output. IncludeStop keeps them in it.
	Stop        []string
	IncludeStop bool
	// KeepSpecial writes special tokens out.
	KeepSpecial bool
	// PromptLogprobs asks for the logprobs of prompt tokens with PromptTop
	// alternatives each; Echo repeats the prompt before the output.
	PromptLogprobs bool
	PromptTop      int
	Echo           bool
	// Stream says that the answer is streamed.
	Stream bool
	// Encoder writes events of a streamed answer; nil if it is collected.
	Encoder Encoder
	// Proto carries milestones 0–3 to every sequence's waybill.
	Proto *waybill.Waybill

	// TraceParent and TraceState are the client's W3C trace context, or empty.
	TraceParent, TraceState string

	// Places is what Reserve gave.
	Places *Places

	writer  *Writer
	seqs    []*Sequence
	invalid atomic.Bool // refused by Intake: never admitted
}

// Sequences returns the request's sequences; valid after Submit.
func (r *Request) Sequences() []*Sequence { return r.seqs }
