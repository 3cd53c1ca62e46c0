package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"waybill/cmd/bench"
)

// benchCmd holds the flags of `waybill bench`, named as those of `vllm bench serve`.
type benchCmd struct {
	Backend  string   `default:"openai" enum:"openai,vllm,openai-chat" help:"API to use: openai and vllm: completions; openai-chat: chat completions."`
	BaseURL  string   `name:"base-url" help:"Server, as http://host:port. Default: from --host and --port."`
	Host     string   `default:"127.0.0.1" help:"Server's host."`
	Port     int      `default:"8000" help:"Server's port."`
	Endpoint string   `help:"Path of the API. Default: by --backend."`
	Model    string   `help:"Model to ask for. Default: the server's first."`
	Served   string   `name:"served-model-name" help:"Model to ask for, if the server has another name for it than --model."`
	Token    string   `name:"tokenizer" help:"Name of the tokenizer in results. Prompts are counted by the server, none is loaded."`
	Header   []string `sep:"none" help:"KEY=VALUE: header to send; may be repeated."`

	DatasetName    string  `default:"random" enum:"random, sharegpt, custom, prefix_repetition" help:"Where prompts come from: ${enum}."`
	DatasetPath    string  `help:"File of sharegpt (a JSON list) or custom (JSON lines with prompt and output_tokens)."`
	NumPrompts     int     `default:"1000" help:"Requests to send."`
	InputLen       *int    `help:"Prompt tokens; stands for the dataset's own flag."`
	OutputLen      *int    `help:"Tokens to generate; stands for the dataset's own flag."`
	DisableShuffle bool    `help:"Keep the dataset's order."`
	SkipTemplate   bool    `name:"skip-chat-template" help:"Accepted for vLLM's command lines: prompts are sent as they are in any case."`
	NoStream       bool    `help:"Accepted for vLLM's command lines: it is about datasets of a hub, and there are none here."`
	DisableTqdm    bool    `help:"Draw no progress bar."`
	Seed           uint64  `default:"0" help:"Same seed: same prompts and arrivals."`
	RandomInput    int     `name:"random-input-len" default:"1024" help:"random: prompt tokens."`
	RandomOutput   int     `name:"random-output-len" default:"128" help:"random: tokens to generate."`
	RandomRange    float64 `name:"random-range-ratio" default:"0" help:"random: lengths are uniform in length times 1 plus or minus this."`
	RandomPrefix   int     `name:"random-prefix-len" default:"0" help:"random: tokens that all prompts share, before the others."`
	CustomOutput   int     `name:"custom-output-len" default:"256" help:"custom: tokens to generate; -1: output_tokens of each line."`
	ShareGPTOutput int     `name:"sharegpt-output-len" default:"0" help:"sharegpt: tokens to generate; 0: as many as the recorded answer has."`
	RepPrefix      int     `name:"prefix-repetition-prefix-len" default:"256" help:"prefix_repetition: tokens of a prefix."`
	RepSuffix      int     `name:"prefix-repetition-suffix-len" default:"256" help:"prefix_repetition: tokens after it."`
	RepPrefixes    int     `name:"prefix-repetition-num-prefixes" default:"10" help:"prefix_repetition: prefixes."`
	RepOutput      int     `name:"prefix-repetition-output-len" default:"128" help:"prefix_repetition: tokens to generate."`

	RequestRate       string  `default:"inf" help:"Requests per second; inf: all at once, so that --max-concurrency decides (closed loop)."`
	Burstiness        float64 `default:"1" help:"Shape of the gamma-distributed gaps: 1 Poisson, below burstier, inf constant."`
	MaxConcurrency    string  `help:"Requests at once; a list as 1,2,4 gives one run for each. Default: no limit."`
	RampUpStrategy    string  `help:"linear or exponential: the rate rises from start to end instead of --request-rate."`
	RampUpStartRPS    float64 `name:"ramp-up-start-rps" help:"Rate at the ramp's start."`
	RampUpEndRPS      float64 `name:"ramp-up-end-rps" help:"Rate at the ramp's end."`
	NumWarmups        int     `default:"0" help:"Requests before the clock starts, in each run."`
	ReadyCheckTimeout float64 `name:"ready-check-timeout-sec" default:"600" help:"Seconds to wait for the server; 0: no check."`
	RequestTimeout    float64 `name:"request-timeout-sec" default:"21600" help:"Seconds until a request that is not answered counts as failed; 0: never."`
	ProbeRate         float64 `name:"probe-request-rate" default:"0" help:"Single-token requests per second beside the load, on connections of their own and reported apart."`

	IgnoreEOS         bool     `name:"ignore-eos" help:"Generate past the natural end. Always on for random."`
	Temperature       float64  `default:"0" help:"Sampling temperature; below 0: not sent."`
	TopP              *float64 `name:"top-p" help:"Nucleus sampling."`
	TopK              *int     `name:"top-k" help:"Top-k sampling."`
	MinP              *float64 `name:"min-p" help:"Min-p sampling."`
	RepetitionPenalty *float64 `help:"Repetition penalty."`
	Logprobs          *int     `help:"Log probabilities to ask for, per token."`
	ExtraBody         string   `help:"JSON object whose fields are added to each request."`

	Goodput           []string `sep:"none" help:"KEY:MS, KEY one of ttft, tpot, e2el: limit of a good request; may be repeated, and take several."`
	PercentileMetrics string   `default:"ttft,tpot,itl,e2el" help:"Metrics to report, of ttft, tpot, itl, e2el."`
	MetricPercentiles string   `default:"99" help:"Percentiles to report, as 50,90,99."`
	Label             string   `help:"Name of the run in results."`
	Metadata          []string `sep:"none" help:"KEY=VALUE: goes into the result; may be repeated."`
	SaveResult        bool     `help:"Write the result as JSON."`
	SaveDetailed      bool     `help:"With every request's times and text."`
	AppendResult      bool     `help:"Append the result to the file as one more line."`
	ResultDir         string   `default:"." help:"Folder of results."`
	ResultFilename    string   `help:"Default: from label, rate, concurrency, model and date."`
	Plot              string   `help:"SVG file: TTFT by concurrency, stacked by phase if the server is a waybill."`

	Probe          string `enum:",phase" default:"" help:"phase: inject single requests between decoding streams and report how long they wait, by phase of the step."`
	ProbeStreams   int    `default:"4" help:"--probe: streams that decode."`
	ProbeCount     int    `default:"500" help:"--probe: requests injected."`
	ProbeIdle      int    `default:"200" help:"--probe: requests to the idle server before."`
	ProbeInputLen  int    `default:"16" help:"--probe: prompt tokens of a probe."`
	ProbeStreamLen int    `default:"1024" help:"--probe: tokens of a stream before it starts again."`
	DumpFile       string `help:"--probe: stderr of a waybill started with VT_TTFT_DUMP=1."`
}

// Run measures a server.
func (c *benchCmd) Run() error {
	o, err := c.options()
	if err != nil {
		return exitError{2, err}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return bench.Run(ctx, o)
}

// options turns flags into what the package takes.
func (c *benchCmd) options() (bench.Options, error) {
	o := bench.Options{
		Backend: c.Backend, BaseURL: c.BaseURL, Endpoint: c.Endpoint, Model: c.Model, Tokenizer: c.Token, APIKey: os.Getenv("OPENAI_API_KEY"),
		Dataset: bench.Dataset{
			Name: c.DatasetName, Path: c.DatasetPath, DisableShuffle: c.DisableShuffle,
			InputLen: c.RandomInput, OutputLen: c.RandomOutput, PrefixLen: c.RandomPrefix, RangeRatio: c.RandomRange,
			CustomOutputLen: c.CustomOutput, ShareGPTOutputLen: c.ShareGPTOutput,
			RepeatedPrefixLen: c.RepPrefix, RepeatedSuffixLen: c.RepSuffix, NumPrefixes: c.RepPrefixes, RepetitionOutputLen: c.RepOutput,
		},
		NumPrompts: c.NumPrompts, Burstiness: c.Burstiness, RampUp: c.RampUpStrategy, RampUpStart: c.RampUpStartRPS, RampUpEnd: c.RampUpEndRPS,
		RequestTimeout: time.Duration(c.RequestTimeout * float64(time.Second)), ProbeRate: c.ProbeRate,
		NumWarmups: c.NumWarmups, ReadyCheckTimeout: time.Duration(c.ReadyCheckTimeout * float64(time.Second)), Seed: c.Seed,
		IgnoreEOS: c.IgnoreEOS, TopP: c.TopP, MinP: c.MinP, TopK: c.TopK, RepetitionPenalty: c.RepetitionPenalty, Logprobs: c.Logprobs,
		Label: c.Label, SaveResult: c.SaveResult, SaveDetailed: c.SaveDetailed, AppendResult: c.AppendResult,
		ResultDir: c.ResultDir, ResultFilename: c.ResultFilename, Plot: c.Plot,
		Out: os.Stdout,
	}
	if c.Served != "" {
		o.Model = c.Served
	}
	if f, err := os.Stderr.Stat(); !c.DisableTqdm && err == nil && f.Mode()&os.ModeCharDevice != 0 {
		o.Progress = os.Stderr
	}
	if c.Probe == "phase" {
		o.Probe = &bench.Probe{
			Streams: c.ProbeStreams, Count: c.ProbeCount, Idle: c.ProbeIdle, InputLen: c.ProbeInputLen, StreamLen: c.ProbeStreamLen, DumpFile: c.DumpFile,
		}
	}
	if o.BaseURL == "" {
		o.BaseURL = "http://" + net.JoinHostPort(c.Host, strconv.Itoa(c.Port))
	}
	if c.Temperature >= 0 {
		o.Temperature = &c.Temperature
	}
	c.lengths(&o.Dataset)
	var err error
	if o.RequestRate, err = strconv.ParseFloat(c.RequestRate, 64); err != nil || math.IsNaN(o.RequestRate) {
		return o, fmt.Errorf("--request-rate %q: must be a number or inf", c.RequestRate)
	}
	if o.MaxConcurrency, err = list(c.MaxConcurrency, strconv.Atoi); err != nil {
		return o, fmt.Errorf("--max-concurrency %q: must be numbers as 1,2,4", c.MaxConcurrency)
	}
	for _, limit := range o.MaxConcurrency {
		if limit < 1 {
			return o, fmt.Errorf("--max-concurrency %q: must be at least 1", c.MaxConcurrency)
		}
	}
	if o.MetricPercentiles, err = list(c.MetricPercentiles, func(s string) (float64, error) { return strconv.ParseFloat(s, 64) }); err != nil {
		return o, fmt.Errorf("--metric-percentiles %q: must be numbers as 50,99", c.MetricPercentiles)
	}
	o.PercentileMetrics, _ = list(c.PercentileMetrics, func(s string) (string, error) { return s, nil })
	if c.ExtraBody != "" {
		if err := json.Unmarshal([]byte(c.ExtraBody), &o.ExtraBody); err != nil {
			return o, fmt.Errorf("--extra-body: must be a JSON object: %w", err)
		}
	}
	if o.Header, err = pairs("--header", c.Header, "="); err != nil {
		return o, err
	}
	if o.Metadata, err = pairs("--metadata", c.Metadata, "="); err != nil {
		return o, err
	}
	limits, err := pairs("--goodput", strings.Fields(strings.Join(c.Goodput, " ")), ":")
	if err != nil {
		return o, err
	}
	o.Goodput = map[string]float64{}
	for k, v := range limits {
		if o.Goodput[k], err = strconv.ParseFloat(v, 64); err != nil {
			return o, fmt.Errorf("--goodput %s:%s: must be milliseconds", k, v)
		}
	}
	return o, nil
}

// lengths lets --input-len and --output-len stand for the dataset's own flags.
func (c *benchCmd) lengths(d *bench.Dataset) {
	if c.InputLen != nil {
		d.InputLen, d.RepeatedSuffixLen = *c.InputLen, *c.InputLen
	}
	if c.OutputLen != nil {
		d.OutputLen, d.CustomOutputLen, d.ShareGPTOutputLen, d.RepetitionOutputLen = *c.OutputLen, *c.OutputLen, *c.OutputLen, *c.OutputLen
	}
}

// manyValued are the flags of `vllm bench serve` that take several values in a
// row.
var manyValued = map[string]bool{"--goodput": true, "--metadata": true, "--header": true}

// repeatFlags writes such a flag once for each of its values, as our parser wants
// it: --goodput a b becomes --goodput a --goodput b.
func repeatFlags(args []string) []string {
	if len(args) == 0 || args[0] != "bench" {
		return args
	}
	var out []string
	for i := 0; i < len(args); i++ {
		out = append(out, args[i])
		if !manyValued[args[i]] {
			continue
		}
		for first := true; i+1 < len(args) && !strings.HasPrefix(args[i+1], "-"); first = false {
			if !first {
				out = append(out, out[len(out)-2])
			}
			i++
			out = append(out, args[i])
		}
	}
	return out
}

// list parses a list with commas; an empty one is nil.
func list[T any](s string, parse func(string) (T, error)) ([]T, error) {
	var out []T
	for _, f := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' }) {
		v, err := parse(f)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// pairs parses KEY<sep>VALUE.
func pairs(flag string, in []string, sep string) (map[string]string, error) {
	out := map[string]string{}
	for _, s := range in {
		k, v, ok := strings.Cut(s, sep)
		if !ok || k == "" {
			return nil, fmt.Errorf("%s %q: must be KEY%sVALUE", flag, s, sep)
		}
		out[k] = v
	}
	return out, nil
}
