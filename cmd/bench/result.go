package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// result returns the JSON object of a run, with the names and meanings of
// `vllm bench serve`. What it does not have is named in the same manner:
// *_ttft_including_client_queue_ms starts when the request was due,
// *_ttft_first_event_ms is vLLM's TTFT where ours differs (mean_ttft_ms starts at
// text, not at an event that carries only a role), failed_reasons counts errors.
func (o *Options) result(s *Summary, now time.Time) map[string]any {
	out := map[string]any{
		"date": now.Format("20060102-150405"), "backend": o.Backend, "endpoint_type": o.Backend,
		"label": nil, "model_id": o.Model, "tokenizer_id": o.tokenizerID(), "num_prompts": len(s.Records),
		"request_rate": number(o.RequestRate), "burstiness": number(o.Burstiness), "max_concurrency": nil,
		"duration": s.Duration.Seconds(), "completed": s.Completed, "failed": s.Failed,
		"total_input_tokens": s.InputTokens, "total_output_tokens": s.OutputTokens,
		"request_throughput": s.perSecond(s.Completed), "request_goodput": nil,
		"output_throughput": s.perSecond(s.OutputTokens), "total_token_throughput": s.perSecond(s.InputTokens + s.OutputTokens),
		"max_output_tokens_per_s": s.MaxTokensPerSecond, "max_concurrent_requests": s.MaxConcurrent, "rtfx": 0.0,
		"failed_reasons": reasons(s.Records),
	}
	if o.Label != "" {
		out["label"] = o.Label
	}
	if s.Concurrency > 0 {
		out["max_concurrency"] = s.Concurrency
	}
	if len(o.Goodput) > 0 {
		out["request_goodput"] = s.perSecond(s.Good)
	}
	if o.RampUp != "" {
		out["ramp_up_strategy"], out["ramp_up_start_rps"], out["ramp_up_end_rps"] = o.RampUp, o.RampUpStart, o.RampUpEnd
		events := []any{}
		for _, c := range s.RPSChanges {
			events = append(events, map[string]any{"rps": c.RPS, "timestamp": s.Start.Add(c.From).Format(time.RFC3339Nano)})
		}
		out["rps_change_events"] = events
	}
	for _, m := range o.metricNames(s) {
		o.addFigures(out, m, s.Samples[m])
	}
	if p := s.Probes; p != nil {
		v := p.Samples["e2el"]
		out["probe_completed"], out["probe_failed"] = p.Completed, p.Failed
		out["probe_median_e2el_ms"], out["probe_p99_e2el_ms"], out["probe_max_e2el_ms"] = v.percentile(50), v.percentile(99), v.percentile(100)
	}
	if s.Phases != nil {
		out["server_phases_mean_ms"] = s.Phases.Mean
		out["server_phases_count"] = s.Phases.Count
	}
	o.addDetails(out, s)
	for k, v := range o.Metadata {
		out[k] = v
	}
	return out
}

// tokenizerID names the tokenizer in results. Tokens are the server's own: it is
// never loaded.
func (o *Options) tokenizerID() string {
	if o.Tokenizer != "" {
		return o.Tokenizer
	}
	return o.Model
}

// metricNames returns the metrics of the result in order.
func (o *Options) metricNames(s *Summary) []string {
	names := append([]string(nil), o.PercentileMetrics...)
	names = append(names, "client_queue_time", "ttft_including_client_queue", "e2el_including_client_queue")
	if s.firstEventDiffers() {
		names = append(names, "ttft_first_event")
	}
	return names
}

// firstEventDiffers reports whether vLLM's TTFT differs from ours.
func (s *Summary) firstEventDiffers() bool {
	for i, v := range s.Samples["ttft_first_event"] {
		if v != s.Samples["ttft"][i] {
			return true
		}
	}
	return false
}

func (o *Options) addFigures(out map[string]any, metric string, v series) {
	out["mean_"+metric+"_ms"], out["median_"+metric+"_ms"], out["std_"+metric+"_ms"] = v.mean(), v.percentile(50), v.std()
	for _, p := range o.MetricPercentiles {
		out["p"+strconv.FormatFloat(p, 'f', -1, 64)+"_"+metric+"_ms"] = v.percentile(p)
	}
}

// addDetails adds one value per request, in the order of the prompts; failed
// requests have zeros and their error.
func (o *Options) addDetails(out map[string]any, s *Summary) {
	n := len(s.Records)
	starts, latencies, queues, ttfts := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	itls, texts, errs := make([][]float64, n), make([]string, n), make([]string, n)
	in, outLens := make([]int, n), make([]int, n)
	for i, r := range s.Records {
		starts[i], queues[i] = r.Sent.Sub(s.Start).Seconds(), r.Queued().Seconds()
		itls[i], texts[i], errs[i], in[i] = []float64{}, r.Text, r.Err, r.InputTokens
		if r.Err != "" {
			continue
		}
		latencies[i], ttfts[i], outLens[i] = r.Latency().Seconds(), r.TTFT().Seconds(), r.OutputTokens
		for _, gap := range r.ITL {
			itls[i] = append(itls[i], gap.Seconds())
		}
	}
	out["start_times"], out["latencies"], out["queue_times"] = starts, latencies, queues
	if o.SaveDetailed {
		out["input_lens"], out["output_lens"], out["ttfts"], out["itls"] = in, outLens, ttfts, itls
		out["generated_texts"], out["errors"] = texts, errs
	}
}

// reasons counts the errors.
func reasons(records []*Record) map[string]int {
	out := map[string]int{}
	for _, r := range records {
		if r.Err != "" {
			out[r.Err]++
		}
	}
	return out
}

// number returns a JSON value for v, which may be infinite.
func number(v float64) any {
	if math.IsInf(v, 1) {
		return "inf"
	}
	return v
}

// resultFile returns where a run's result goes. levels is the number of runs: with
// several of them a given name gets the concurrency, unless results are appended.
func (o *Options) resultFile(concurrency, levels int, now time.Time) string {
	name := o.ResultFilename
	limit := ""
	if concurrency > 0 {
		limit = fmt.Sprintf("-concurrency%d", concurrency)
	}
	switch {
	case name == "":
		label := o.Label
		if label == "" {
			label = o.Backend
		}
		name = fmt.Sprintf("%s-%vqps%s-%s-%s.json", label, number(o.RequestRate), limit, path.Base(o.Model), now.Format("20060102-150405"))
	case levels > 1 && !o.AppendResult:
		ext := filepath.Ext(name)
		name = strings.TrimSuffix(name, ext) + limit + ext
	}
	return filepath.Join(o.ResultDir, name)
}

// save writes a result, as its own file or as one more line.
func (o *Options) save(file string, result map[string]any) error {
	b, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("bench: result: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("bench: result: %w", err)
	}
	if o.AppendResult {
		old, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("bench: result: %w", err)
		}
		if len(old) > 0 {
			b = append(append(old, '\n'), b...)
		}
	}
	if err := os.WriteFile(file, b, 0o644); err != nil {
		return fmt.Errorf("bench: result: %w", err)
	}
	return nil
}
