package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// parse parses a command line without running it.
func parse(t *testing.T, args ...string) *cli {
	t.Helper()
	var c cli
	if _, err := newParser(&c).Parse(args); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return &c
}

func TestBenchFlagsReachTheOptions(t *testing.T) {
	c := parse(t, "bench", "--request-rate", "inf", "--burstiness", "inf", "--max-concurrency", "1,2,4", "--header", "A=b=c", "--header", "X=1,2",
		"--goodput", "ttft:100 e2el:2000", "--metadata", "k=v", "--metric-percentiles", "50,99.9", "--extra-body", `{"seed":1}`,
		"--input-len", "7", "--output-len", "9", "--temperature", "0", "--top-k", "5")
	o, err := c.Bench.options()
	if err != nil {
		t.Fatal(err)
	}
	if len(o.MaxConcurrency) != 3 || o.Header["A"] != "b=c" || o.Header["X"] != "1,2" || o.Goodput["e2el"] != 2000 || o.Metadata["k"] != "v" ||
		o.MetricPercentiles[1] != 99.9 || o.ExtraBody["seed"] != 1.0 || o.Dataset.InputLen != 7 || o.Dataset.CustomOutputLen != 9 ||
		o.Temperature == nil || *o.TopK != 5 || o.TopP != nil || o.BaseURL != "http://127.0.0.1:8000" || o.Probe != nil {
		t.Errorf("options %+v", o)
	}
	o, err = parse(t, "bench", "--probe", "phase", "--probe-streams", "3", "--temperature=-1").Bench.options()
	if err != nil || o.Probe == nil || o.Probe.Streams != 3 || o.Temperature != nil {
		t.Errorf("options %+v, error %v", o, err)
	}
	for flag, bad := range map[string]string{
		"--request-rate": "x", "--max-concurrency": "0", "--metric-percentiles": "a", "--extra-body": "[1]", "--header": "novalue", "--goodput": "ttft:x",
	} {
		if _, err := parse(t, "bench", flag, bad).Bench.options(); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s %s: error %v", flag, bad, err)
		}
	}
}

func TestFlagsWithSeveralValuesAreRepeated(t *testing.T) {
	for in, want := range map[string]string{
		"bench --goodput ttft:100 tpot:50 --seed 1": "bench --goodput ttft:100 --goodput tpot:50 --seed 1",
		"bench --metadata a=1 b=2 c=3":              "bench --metadata a=1 --metadata b=2 --metadata c=3",
		"bench --goodput --seed 1":                  "bench --goodput --seed 1",
		"bench --header A=1 --goodput=ttft:1":       "bench --header A=1 --goodput=ttft:1",
		"ttft diff a b":                             "ttft diff a b",
	} {
		if got := strings.Join(repeatFlags(strings.Fields(in)), " "); got != want {
			t.Errorf("%s becomes %s, want %s", in, got, want)
		}
	}
	// A command line of vLLM's documentation, as it is.
	o, err := parse(t, repeatFlags(strings.Fields("bench --backend openai --endpoint /v1/completions --model m --served-model-name n --tokenizer k "+
		"--dataset-name random --goodput ttft:100 tpot:50 --disable-tqdm --skip-chat-template --no-stream --probe-request-rate 2 --save-result"))...).Bench.options()
	if err != nil || o.Model != "n" || o.Tokenizer != "k" || o.Goodput["tpot"] != 50 || o.ProbeRate != 2 || o.Progress != nil {
		t.Errorf("options %+v, error %v", o, err)
	}
}

// waybill runs the program and returns its stdout.
func waybill(t *testing.T, args ...string) string {
	t.Helper()
	bin, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("waybill %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}

func TestBenchAndTTFTTellTheSameStory(t *testing.T) {
	p := serveDefault(t, []string{"VT_TTFT_DUMP=1"})
	dir := t.TempDir()
	out := waybill(t, "bench", "--base-url", p.url, "--num-prompts", "12", "--random-input-len", "20", "--random-output-len", "6",
		"--max-concurrency", "3", "--save-result", "--result-dir", dir, "--result-filename", "r.json", "--plot", filepath.Join(dir, "p.svg"))
	if !strings.Contains(out, "TTFT by the server's ledger") {
		t.Errorf("the server's phases are missing:\n%s", out)
	}
	b, err := os.ReadFile(filepath.Join(dir, "r.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Completed int                `json:"completed"`
		In        int                `json:"total_input_tokens"`
		Out       int                `json:"total_output_tokens"`
		Client    float64            `json:"mean_ttft_ms"`
		Server    map[string]float64 `json:"server_phases_mean_ms"`
	}
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	if r.Completed != 12 || r.Out != 72 || r.In == 0 {
		t.Errorf("%d completed, %d tokens in, %d out; want 12, some, 72", r.Completed, r.In, r.Out)
	}
	// The client's clock starts before the server's and stops after it.
	if r.Server["ttft"] <= 0 || r.Client < r.Server["ttft"] {
		t.Errorf("mean ttft: client %g ms, server %g ms", r.Client, r.Server["ttft"])
	}
	// A waybill is booked a moment after its last byte.
	for end := time.Now().Add(10 * time.Second); strings.Count(p.log(), "TTFTSPLIT") < 13 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
	}
	log := filepath.Join(dir, "c3.log")
	if err := os.WriteFile(log, []byte(p.log()), 0o644); err != nil {
		t.Fatal(err)
	}
	if out := waybill(t, "ttft", log); !strings.Contains(out, "c=3: 13 requests (13 length)") || strings.Contains(out, "unattributed") {
		t.Errorf("waybill ttft:\n%s", out)
	}
	if out := waybill(t, "ttft", "diff", log, log); !strings.Contains(out, "→ ttft: no gap") {
		t.Errorf("waybill ttft diff:\n%s", out)
	}
}
