package bench

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (regenerate with -update and review):\ngot:\n%s\nwant:\n%s", file, got, want)
	}
}

// sample is a scripted run: two chat requests that differ in everything and one
// that failed.
func sample(t *testing.T) (*Options, *Summary) {
	t.Helper()
	first := script(t, 150, roleEvent, 210, helloEvent, 250, helloEvent, 310, finishEvent, 315, usageEvent, 316, "[DONE]")
	second := script(t, 160, helloEvent, 1400, helloEvent, 1410, finishEvent, 1411, usageEvent)
	failed := &Record{Due: at(100), Sent: at(120), Err: "503 Service Unavailable: full"}
	o := &Options{
		Backend: "openai-chat", Model: "org/model", Label: "run", RequestRate: 5, Burstiness: inf, Seed: 3, SaveDetailed: true,
		PercentileMetrics: []string{"ttft", "tpot", "itl", "e2el"}, MetricPercentiles: []float64{50, 99.9},
		Goodput: map[string]float64{"ttft": 100, "e2el": 1000}, Metadata: map[string]string{"gpu": "none"},
	}
	s := summarize(o, []*Record{first, failed, second})
	s.Concurrency, s.Start, s.Duration = 2, at(100), 2*time.Second
	s.Phases = &serverPhases{Mean: map[string]float64{"intake": 1, "queued": 2, "prefill": 60, "egress": 0.5, "ttft": 63.5}, Count: 2}
	return o, s
}

func TestResultHasTheFieldsOfTheOriginal(t *testing.T) {
	o, s := sample(t)
	b, err := json.MarshalIndent(o.result(s, at(0)), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "result.json", append(b, '\n'))
}

func TestFieldsThatToolsReadArePresent(t *testing.T) {
	o, s := sample(t)
	r := o.result(s, at(0))
	for _, k := range []string{
		"date", "backend", "endpoint_type", "label", "model_id", "tokenizer_id", "num_prompts", "request_rate", "burstiness", "max_concurrency",
		"duration", "completed", "failed", "total_input_tokens", "total_output_tokens", "request_throughput", "request_goodput", "output_throughput",
		"total_token_throughput", "max_output_tokens_per_s", "max_concurrent_requests", "rtfx", "start_times", "latencies", "queue_times",
		"mean_ttft_ms", "median_ttft_ms", "std_ttft_ms", "p50_ttft_ms", "p99.9_ttft_ms", "mean_tpot_ms", "mean_itl_ms", "mean_e2el_ms",
		"mean_client_queue_time_ms", "mean_e2el_including_client_queue_ms", "input_lens", "output_lens", "ttfts", "itls", "generated_texts", "errors",
	} {
		if _, ok := r[k]; !ok {
			t.Errorf("the result lacks %s", k)
		}
	}
}

func TestTable(t *testing.T) {
	o, s := sample(t)
	var b bytes.Buffer
	o.table(&b, s)
	golden(t, "table.txt", b.Bytes())
}

func TestPlotIsWellFormed(t *testing.T) {
	_, s := sample(t)
	other := *s
	other.Concurrency, other.Phases, other.Failed = 0, nil, 0
	b := plot([]*Summary{s, &other})
	for d := xml.NewDecoder(bytes.NewReader(b)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "plot.svg", b)
}

func TestBarIsAsTallAsTheMean(t *testing.T) {
	_, s := sample(t)
	var sum float64
	for _, g := range s.segments() {
		sum += g.height
	}
	if want := s.Samples["ttft"].mean(); sum != want {
		t.Errorf("the segments add up to %g, the mean is %g", sum, want)
	}
}

func TestResultFilesDoNotOverwriteEachOther(t *testing.T) {
	o := &Options{Backend: "openai", Model: "org/m", RequestRate: inf, ResultDir: "d"}
	if got := o.resultFile(4, 2, at(0)); got != "d/openai-infqps-concurrency4-m-20260101-000000.json" {
		t.Errorf("got %s", got)
	}
	o.ResultFilename = "r.json"
	if got := o.resultFile(4, 1, at(0)); got != "d/r.json" {
		t.Errorf("got %s", got)
	}
	if got := o.resultFile(4, 2, at(0)); got != "d/r-concurrency4.json" {
		t.Errorf("got %s", got)
	}
}
