package actors

import (
	"flag"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"waybill/actors/waybill"
)

var update = flag.Bool("update", false, "write docs/METRICS.md anew")

// families serves some requests and returns all series.
func families(t *testing.T, e *testEngine) []*dto.MetricFamily {
	t.Helper()
	var wg sync.WaitGroup
	for i, g := range goldens(t) {
		wg.Go(func() {
			r := e.request(g.IDs, len(g.Tokens))
			r.Stream = i%2 == 0
			if _, err := e.serve(r, &testConn{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	e.quiet()
	eventually(t, "all are booked", func() bool { return e.success(waybill.Length) == len(goldens(t)) })
	f, err := e.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// labels returns the label names of a family, those of all series left out.
func labels(f *dto.MetricFamily) string {
	seen := map[string]map[string]bool{}
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			if n := l.GetName(); n != "model_name" && n != "engine" {
				if seen[n] == nil {
					seen[n] = map[string]bool{}
				}
				seen[n][l.GetValue()] = true
			}
		}
	}
	var out []string
	for n, values := range seen {
		var v []string
		for x := range values {
			v = append(v, x)
		}
		sort.Strings(v)
		if n == "block_size" || n == "num_gpu_blocks" || n == "cache_dtype" || n == "enable_prefix_caching" || n == "gpu" || n == "UUID" || n == "modelName" {
			v = []string{"…"}
		}
		out = append(out, fmt.Sprintf("`%s` = %s", n, strings.Join(v, ", ")))
	}
	sort.Strings(out)
	return strings.Join(out, "; ")
}

func TestMetricsPageIsWhatTheCodeExports(t *testing.T) {
	cfg := testConfig()
	cfg.Telemetry = func() ([]GPUInfo, error) {
		g := aGPU()
		g.PowerW, g.PowerLimitW = 100, 700
		return []GPUInfo{g}, nil
	}
	e := startEngine(t, cfg)
	var b strings.Builder
	b.WriteString("# Metrics\n\nEvery series at `/metrics`, written by a test from the code. All carry `model_name` and `engine`. Names that begin with `vllm:`\n" +
		"mean what vLLM means by them, unless the text says otherwise; their buckets include vLLM's and finer ones below. Those that begin with `DCGM` have the names\n" +
		"of NVIDIA's DCGM exporter; they come from the driver's management library, where there is a GPU in use, and are at most a second old.\n\n| name | type | labels | meaning |\n| --- | --- | --- | --- |\n")
	for _, f := range families(t, e) {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), labels(f), f.GetHelp())
	}
	const page = "../docs/METRICS.md"
	if *update {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != b.String() {
		t.Errorf("%s is not what the code exports; go test ./actors -run MetricsPage -update", page)
	}
}

func TestHistogramsCountTheSequencesThatGotThere(t *testing.T) {
	e := startEngine(t, testConfig())
	n := uint64(len(goldens(t)))
	var tokens uint64
	for _, g := range goldens(t) {
		tokens += uint64(len(g.Tokens))
	}
	want := map[string]uint64{
		"vllm:time_to_first_token_seconds": n, "vllm:e2e_request_latency_seconds": n, "vllm:request_queue_time_seconds": n,
		"vllm:request_prefill_time_seconds": n, "vllm:request_decode_time_seconds": n, "vllm:request_inference_time_seconds": n,
		"vllm:request_time_per_output_token_seconds": n, "vllm:request_prompt_tokens": n, "vllm:request_generation_tokens": n,
		"vllm:inter_token_latency_seconds": tokens - n,
	}
	for _, f := range families(t, e) {
		if w, ok := want[f.GetName()]; ok {
			if got := f.GetMetric()[0].GetHistogram().GetSampleCount(); got != w {
				t.Errorf("%s has %d samples, want %d", f.GetName(), got, w)
			}
			delete(want, f.GetName())
		}
	}
	for name := range want {
		t.Errorf("%s is not exported", name)
	}
}

func TestVLLMsBucketsAreKept(t *testing.T) {
	for _, c := range []struct {
		name string
		ours []float64
		vllm []float64
	}{
		{"ttft", ttftBuckets, []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}},
		{"itl", itlBuckets, []float64{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}},
		{"e2e", e2eBuckets, []float64{.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}},
		{"iteration", stepTokens, []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}},
	} {
		for _, v := range c.vllm {
			i := sort.SearchFloat64s(c.ours, v)
			if i == len(c.ours) || c.ours[i] != v {
				t.Errorf("%s lacks vLLM's bucket %v", c.name, v)
			}
		}
		if !sort.Float64sAreSorted(c.ours) {
			t.Errorf("%s is not sorted", c.name)
		}
	}
}
