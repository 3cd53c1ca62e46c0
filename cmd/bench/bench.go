// Package bench measures a server of OpenAI's API from outside, with the
// arguments, definitions and result fields of `vllm bench serve`: datasets, load
// models, the client, the figures, their table, JSON and plot; and the phase
// probe, which injects single requests between decoding streams.
package bench

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"
)

// Options says what to run. Zero values are not the defaults; the command line
// has those.
type Options struct {
	Backend  string // openai, vllm or openai-chat
	BaseURL  string // http://host:port; a path is put before every other
	Endpoint string // empty: by backend
	Model    string // empty: the server's first
	// Tokenizer is what results call the tokenizer; empty: as the model.
	Tokenizer string
	APIKey    string            // empty: none is sent
	Header    map[string]string // wins over the key's

	Dataset           Dataset
	NumPrompts        int
	RequestRate       float64       // per second; +Inf: all at once
	Burstiness        float64       // shape of the gamma-distributed gaps; +Inf: constant
	MaxConcurrency    []int         // one run for each; 0: no limit
	RampUp            string        // "", linear or exponential
	RampUpStart       float64       // per second, at the first request
	RampUpEnd         float64       // per second, at the last
	NumWarmups        int           // before each run
	ReadyCheckTimeout time.Duration // 0: no check
	RequestTimeout    time.Duration // from sending to the last byte; 0: none
	ProbeRate         float64       // single-token requests beside the load, per second; 0: none
	Seed              uint64        // of prompts and arrivals, each with a stream of its own

	// Sampling parameters are sent only if set; IgnoreEOS only if true, for servers
	// that refuse unknown fields.
	IgnoreEOS         bool
	Temperature       *float64
	TopP, MinP        *float64
	RepetitionPenalty *float64
	TopK, Logprobs    *int
	ExtraBody         map[string]any

	Goodput           map[string]float64 // ms by ttft, tpot, e2el
	PercentileMetrics []string           // of ttft, tpot, itl, e2el
	MetricPercentiles []float64          // 0 to 100
	Label             string
	Metadata          map[string]string // into the result, as fields of their own
	SaveResult        bool
	SaveDetailed      bool // with times and text of each request
	AppendResult      bool // one more line of the file
	ResultDir         string
	ResultFilename    string
	Plot              string // SVG file; empty: none

	Probe *Probe // nil: an ordinary run

	Out      io.Writer // the tables
	Progress io.Writer // nil: no progress bar
}

// ErrFailedRequests is returned, after the report, if a request failed.
var ErrFailedRequests = errors.New("bench: there were failed requests")

// chat reports whether requests go to the chat API.
func (o *Options) chat() bool { return o.Backend == "openai-chat" }

// endpoint returns the path of the API.
func (o *Options) endpoint() string {
	switch {
	case o.Endpoint != "":
		return o.Endpoint
	case o.chat():
		return "/v1/chat/completions"
	}
	return "/v1/completions"
}

// check returns the first option that makes no sense.
func (o *Options) check() error {
	bad := func(format string, args ...any) error { return fmt.Errorf("bench: "+format, args...) }
	switch o.Backend {
	case "openai", "vllm", "openai-chat":
	default:
		return bad("--backend %q: must be openai, vllm or openai-chat", o.Backend)
	}
	if o.NumPrompts < 1 {
		return bad("--num-prompts %d: must be at least 1", o.NumPrompts)
	}
	if !(o.RequestRate > 0) {
		return bad("--request-rate %g: must be above 0, or inf", o.RequestRate)
	}
	if !(o.Burstiness > 0) {
		return bad("--burstiness %g: must be above 0, or inf for constant gaps", o.Burstiness)
	}
	switch o.RampUp {
	case "":
	case "linear", "exponential":
		if !math.IsInf(o.RequestRate, 1) {
			return bad("--ramp-up-strategy and --request-rate exclude each other")
		}
		if o.RampUpStart < 0 || o.RampUpEnd <= 0 || o.RampUpStart > o.RampUpEnd || o.RampUp == "exponential" && o.RampUpStart == 0 {
			return bad("ramp-up from %g to %g requests/s: must rise, and start above 0 if exponential", o.RampUpStart, o.RampUpEnd)
		}
	default:
		return bad("--ramp-up-strategy %q: must be linear or exponential", o.RampUp)
	}
	if o.RequestTimeout < 0 {
		return bad("--request-timeout-sec %g: must be at least 0", o.RequestTimeout.Seconds())
	}
	if !(o.ProbeRate >= 0) || math.IsInf(o.ProbeRate, 1) {
		return bad("--probe-request-rate %g: must be requests per second, or 0 for none", o.ProbeRate)
	}
	for k, v := range o.Goodput {
		if k != "ttft" && k != "tpot" && k != "e2el" || v < 0 {
			return bad("--goodput %s:%g: must be ttft, tpot or e2el with milliseconds", k, v)
		}
	}
	for _, m := range o.PercentileMetrics {
		if m != "ttft" && m != "tpot" && m != "itl" && m != "e2el" {
			return bad("--percentile-metrics %q: must be of ttft, tpot, itl, e2el", m)
		}
	}
	for _, p := range o.MetricPercentiles {
		if !(p >= 0 && p <= 100) {
			return bad("--metric-percentiles %g: must be 0 to 100", p)
		}
	}
	for _, c := range o.MaxConcurrency {
		if c < 0 {
			return bad("--max-concurrency %d: must be at least 1", c)
		}
	}
	return o.Dataset.check()
}

// closedLoop reports whether the next request waits for a slot only, not for a
// time.
func (o *Options) closedLoop() bool { return o.RampUp == "" && math.IsInf(o.RequestRate, 1) }

// headers returns the request headers, with the key as a bearer token.
func (o *Options) headers() map[string]string {
	h := map[string]string{}
	if o.APIKey != "" {
		h["Authorization"] = "Bearer " + o.APIKey
	}
	for k, v := range o.Header {
		h[k] = v
	}
	return h
}

// out returns where reports go.
func (o *Options) out() io.Writer {
	if o.Out == nil {
		return os.Stdout
	}
	return o.Out
}
