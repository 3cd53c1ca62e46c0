package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// run runs the options and returns what was printed.
func run(t *testing.T, o Options) (string, error) {
	t.Helper()
	var out bytes.Buffer
	o.Out = &out
	err := Run(t.Context(), o)
	return out.String(), err
}

func TestClosedLoopKeepsTheLimit(t *testing.T) {
	f := newFake(t, func(w *stream, _ int, body map[string]any) {
		time.Sleep(15 * time.Millisecond)
		quick(w, 0, body)
	})
	f.tokenize = true
	o := f.options()
	o.NumPrompts, o.MaxConcurrency = 12, []int{3}
	if _, err := run(t, o); err != nil {
		t.Fatal(err)
	}
	if got := f.mostOpen.Load(); got != 3 {
		t.Errorf("%d requests were open at once, want 3", got)
	}
	if got := len(f.bodies); got != 13 {
		t.Errorf("%d requests, want the test request and 12", got)
	}
}

func TestOpenLoopDoesNotWaitForAnswers(t *testing.T) {
	f := newFake(t, func(w *stream, _ int, body map[string]any) {
		time.Sleep(150 * time.Millisecond)
		quick(w, 0, body)
	})
	f.tokenize = true
	o := f.options()
	o.NumPrompts, o.RequestRate, o.Burstiness = 5, 50, inf
	if _, err := run(t, o); err != nil {
		t.Fatal(err)
	}
	arrivals := f.arrivals[1:]
	if spread := arrivals[4].Sub(arrivals[0]); spread > 145*time.Millisecond {
		t.Errorf("the requests came within %v, want 80 ms: they waited for answers", spread)
	}
	if f.mostOpen.Load() != 5 {
		t.Errorf("%d requests were open at once, want all 5", f.mostOpen.Load())
	}
}

func TestWaitForASlotIsInTheTimeFromDue(t *testing.T) {
	f := newFake(t, func(w *stream, _ int, body map[string]any) {
		time.Sleep(40 * time.Millisecond)
		quick(w, 0, body)
	})
	f.tokenize = true
	o := f.options()
	o.NumPrompts, o.RequestRate, o.Burstiness, o.MaxConcurrency = 3, 1000, inf, []int{1}
	o.SaveResult, o.SaveDetailed, o.ResultDir, o.ResultFilename = true, true, t.TempDir(), "r.json"
	if _, err := run(t, o); err != nil {
		t.Fatal(err)
	}
	r := readResult(t, filepath.Join(o.ResultDir, "r.json"))
	queues, ttfts := r["queue_times"].([]any), r["ttfts"].([]any)
	// The third is due 2 ms after the first and waits for two answers of 40 ms.
	if q := queues[2].(float64); q < 0.070 {
		t.Errorf("the third request waited %g s in the client, want about 0.078", q)
	}
	if sent, due := r["mean_ttft_ms"].(float64), r["mean_ttft_including_client_queue_ms"].(float64); due < sent+20 || ttfts[2].(float64) > 0.070 {
		t.Errorf("ttft from sending %g ms, from due time %g ms", sent, due)
	}
}

func readResult(t *testing.T, file string) map[string]any {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestFailuresComeFirstAndMakeTheRunFail(t *testing.T) {
	f := newFake(t, func(w *stream, n int, body map[string]any) {
		if n == 2 {
			w.WriteHeader(503)
			_, _ = w.Write([]byte(`{"error":{"message":"full"}}`))
			return
		}
		quick(w, n, body)
	})
	f.tokenize = true
	o := f.options()
	o.MaxConcurrency = []int{1}
	o.SaveResult, o.ResultDir, o.ResultFilename = true, t.TempDir(), "r.json"
	out, err := run(t, o)
	if !errors.Is(err, ErrFailedRequests) {
		t.Errorf("error %v, want ErrFailedRequests", err)
	}
	if !strings.HasPrefix(strings.TrimSpace(out), "FAILED: 1 of 4 requests") || !strings.Contains(out, "1 × 503 Service Unavailable: full") {
		t.Errorf("the report does not begin with the failures:\n%s", out)
	}
	r := readResult(t, filepath.Join(o.ResultDir, "r.json"))
	if r["completed"] != 3.0 || r["failed"] != 1.0 {
		t.Errorf("completed %v, failed %v; want 3, 1", r["completed"], r["failed"])
	}
}

func TestNothingIsMeasuredIfTheTestRequestFails(t *testing.T) {
	f := newFake(t, func(w *stream, _ int, _ map[string]any) { w.WriteHeader(500) })
	f.tokenize = true
	out, err := run(t, f.options())
	if err == nil || !strings.Contains(err.Error(), "nothing was measured") || out != "" {
		t.Errorf("error %v, output %q", err, out)
	}
}

func TestSeveralConcurrenciesMakeSeveralRuns(t *testing.T) {
	f := newFake(t, quick)
	f.tokenize = true
	o := f.options()
	o.MaxConcurrency, o.NumWarmups = []int{1, 2}, 2
	o.AppendResult, o.ResultDir, o.ResultFilename = true, t.TempDir(), "r.jsonl"
	o.Plot = filepath.Join(o.ResultDir, "p.svg")
	if _, err := run(t, o); err != nil {
		t.Fatal(err)
	}
	if want := 1 + 2*(2+4); len(f.bodies) != want {
		t.Errorf("%d requests, want %d", len(f.bodies), want)
	}
	b, err := os.ReadFile(filepath.Join(o.ResultDir, "r.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(b), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines, want 2", len(lines))
	}
	for i, l := range lines {
		var r map[string]any
		if err := json.Unmarshal([]byte(l), &r); err != nil || r["max_concurrency"] != float64(i+1) {
			t.Errorf("line %d: max_concurrency %v, error %v", i, r["max_concurrency"], err)
		}
	}
	if svg, err := os.ReadFile(o.Plot); err != nil || !bytes.HasPrefix(svg, []byte("<svg")) {
		t.Errorf("plot: %v", err)
	}
}

func TestServersPhasesAreTheDifferenceOfTwoScrapes(t *testing.T) {
	f := newFake(t, quick)
	f.tokenize = true
	scrapes := 0
	f.metrics = func() string {
		// Before: 1 request of 1 s in each phase. After: 4 more of 10 ms.
		scrapes++
		count, sum := "1", "1"
		if scrapes > 1 {
			count, sum = "5", "1.04"
		}
		var b strings.Builder
		b.WriteString("# TYPE waybill:request_phase_seconds histogram\n")
		for _, p := range []string{"intake", "queued", "prefill", "egress", "ttft"} {
			for _, l := range []string{`_bucket{phase="` + p + `",le="+Inf"} ` + count, `_sum{phase="` + p + `"} ` + sum, `_count{phase="` + p + `"} ` + count} {
				b.WriteString(phaseMetric + l + "\n")
			}
		}
		return b.String()
	}
	out, err := run(t, f.options())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "intake 10.000 + queued 10.000 + prefill 10.000 + egress 10.000 = 10.000") {
		t.Errorf("phases are missing or wrong:\n%s", out)
	}
}

func TestARoleEventIsVLLMsFirstTokenButNotOurs(t *testing.T) {
	const thinking = 30 * time.Millisecond
	f := newFake(t, func(w *stream, _ int, _ map[string]any) {
		w.begin()
		w.delta(`"role":"assistant","content":""`)
		time.Sleep(thinking)
		w.delta(`"content":"hello"`)
		w.end(5, 1)
	})
	f.tokenize = true
	o := f.options()
	o.Backend, o.NumPrompts = "openai-chat", 2
	o.SaveResult, o.ResultDir, o.ResultFilename = true, t.TempDir(), "r.json"
	out, err := run(t, o)
	if err != nil {
		t.Fatal(err)
	}
	r := readResult(t, filepath.Join(o.ResultDir, "r.json"))
	if ours, theirs := r["mean_ttft_ms"].(float64), r["mean_ttft_first_event_ms"].(float64); ours-theirs < 0.9*ms(thinking) {
		t.Errorf("ttft %g ms, to the first event %g ms; want them about %v apart", ours, theirs, thinking)
	}
	if !strings.Contains(out, "TTFT to first event (vLLM's)") {
		t.Errorf("the report does not tell both:\n%s", out)
	}
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	for name, change := range map[string]func(o *Options){
		"--backend":             func(o *Options) { o.Backend = "x" },
		"--num-prompts":         func(o *Options) { o.NumPrompts = 0 },
		"--request-rate":        func(o *Options) { o.RequestRate = -1 },
		"--burstiness":          func(o *Options) { o.Burstiness = 0 },
		"ramp-up":               func(o *Options) { o.RampUp, o.RampUpStart, o.RampUpEnd = "exponential", 0, 5 },
		"exclude each other":    func(o *Options) { o.RampUp, o.RequestRate = "linear", 3 },
		"--goodput":             func(o *Options) { o.Goodput = map[string]float64{"x": 1} },
		"--percentile-metrics":  func(o *Options) { o.PercentileMetrics = []string{"x"} },
		"--metric-percentiles":  func(o *Options) { o.MetricPercentiles = []float64{101} },
		"--dataset-name":        func(o *Options) { o.Dataset.Name = "x" },
		"--random-range-ratio":  func(o *Options) { o.Dataset.RangeRatio = 1 },
		"needs --dataset-path":  func(o *Options) { o.Dataset.Name = "custom" },
		"base URL":              func(o *Options) { o.BaseURL = "localhost:80" },
		"random lengths":        func(o *Options) { o.Dataset.InputLen = 0 },
		"--max-concurrency -1:": func(o *Options) { o.MaxConcurrency = []int{-1} },
	} {
		f := newFake(t, quick)
		o := f.options()
		change(&o)
		if _, err := run(t, o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want one with %q", err, name)
		}
	}
}
