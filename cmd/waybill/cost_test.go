package main

import (
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// serveBinary starts another build of the program on the default model.
func serveBinary(t *testing.T, bin string, env []string, args ...string) (url string) {
	t.Helper()
	p := startBuilt(t, func() (string, error) { return bin, nil }, env,
		append([]string{"serve", defaultModel, "--port", "0", "--served-model-name", "smollm2"}, args...)...)
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if m := readyLine.FindStringSubmatch(p.log()); m != nil {
			return m[1]
		}
	}
	t.Fatalf("not ready within 60 s:\n%s", p.log())
	return ""
}

// tokensPerSecond loads a server and returns its output throughput.
func tokensPerSecond(t *testing.T, url string, requests, streams int) float64 {
	t.Helper()
	dir := t.TempDir()
	waybill(t, "bench", "--base-url", url, "--num-prompts", strconv.Itoa(requests), "--max-concurrency", strconv.Itoa(streams),
		"--random-input-len", "16", "--random-output-len", "64", "--save-result", "--result-dir", dir, "--result-filename", "r.json")
	b, err := os.ReadFile(filepath.Join(dir, "r.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Throughput float64 `json:"output_throughput"`
	}
	if err := json.Unmarshal(b, &r); err != nil || r.Throughput <= 0 {
		t.Fatalf("output_throughput %g, %v", r.Throughput, err)
	}
	return r.Throughput
}

// What stamps, metrics, dump lines and the request log cost: the program against
// a build of it that has none of them, in turns, one idle while the other works.
func TestObservingCostsLittle(t *testing.T) {
	pairs, requests := 1, 8
	if *full {
		pairs, requests = 16, 32
	}
	bin := filepath.Join(t.TempDir(), "waybill")
	if out, err := exec.Command("go", "build", "-tags", "nostamps", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	with, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	serve := [2]func(*testing.T) string{
		func(t *testing.T) string {
			return serveBinary(t, with, []string{"VT_TTFT_DUMP=1"}, "--log-format", "json")
		},
		func(t *testing.T) string { return serveBinary(t, bin, nil, "--log-format", "none") },
	}
	// One process may be some per cent faster than another of the same program, by
	// where its memory lies. So each figure is a fresh process's.
	var ratios []float64
	for i := range pairs {
		var got [2]float64
		for k := range 2 {
			which := (i + k) % 2 // either goes first every other time
			t.Run("", func(t *testing.T) {
				url := serve[which](t)
				tokensPerSecond(t, url, 8, 8)
				got[which] = tokensPerSecond(t, url, requests, 8)
				// The builds are what they are said to be.
				booked := waybillMetric(t, url, "vllm:e2e_request_latency_seconds_count")
				if want := float64(requests + 8); (which == 0) != (booked >= want) {
					t.Errorf("server %d has booked %g requests of %g", which, booked, want)
				}
			})
		}
		ratios = append(ratios, got[0]/got[1])
		t.Logf("pair %2d: %.1f tok/s observed, %.1f not: ratio %.4f", i, got[0], got[1], got[0]/got[1])
	}
	var mean, squares float64
	for _, r := range ratios {
		mean += r / float64(len(ratios))
	}
	for _, r := range ratios {
		squares += (r - mean) * (r - mean)
	}
	t.Logf("%d pairs: ratio mean %.4f, median %.4f", pairs, mean, quantile(ratios, .5))
	if pairs > 1 {
		noise := 2 * math.Sqrt(squares/float64(pairs-1)/float64(pairs))
		t.Logf("two standard errors are %.4f", noise)
		if mean+noise < 0.99 {
			t.Errorf("observing costs %.2f %% of the throughput, want less than 1 %%", 100*(1-mean))
		}
	}
}

// waybillMetric returns the sum of a series.
func waybillMetric(t *testing.T, url, name string) (sum float64) {
	t.Helper()
	for _, l := range strings.Split(fetch(t, http.DefaultClient, url+"/metrics", ""), "\n") {
		if strings.HasPrefix(l, name+"{") {
			v, err := strconv.ParseFloat(l[strings.LastIndexByte(l, ' ')+1:], 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += v
		}
	}
	return sum
}

// viewers opens n consoles and returns a function that closes them.
func viewers(t *testing.T, url string, n int) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var open atomic.Int64
	for range n {
		wg.Go(func() {
			req, err := http.NewRequestWithContext(ctx, "GET", url+"/console/api/events", nil)
			if err != nil {
				t.Error(err)
				return
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			if res.StatusCode != 200 {
				t.Errorf("a viewer got %s", res.Status)
			}
			open.Add(1)
			_, _ = io.Copy(io.Discard, res.Body)
		})
	}
	for end := time.Now().Add(20 * time.Second); open.Load() < int64(n); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d of %d viewers got in", open.Load(), n)
		}
	}
	return func() {
		cancel()
		wg.Wait()
		time.Sleep(50 * time.Millisecond) // a hang-up is noticed within that
	}
}

// Watching costs next to nothing: one viewer, and as many as may come. One more is
// refused, and sampling ends with the last.
func TestWatchingCostsLittle(t *testing.T) {
	pairs, requests := 1, 8
	if *full {
		pairs, requests = 16, 32
	}
	const most = 50
	p := serveDefault(t, nil, "--log-format", "none")
	tokensPerSecond(t, p.url, 8, 8)
	for _, n := range []int{1, most} {
		var ratios []float64
		for i := range pairs {
			var got [2]float64
			for k := range 2 {
				which := (i + k) % 2
				leave := func() {}
				if which == 1 {
					leave = viewers(t, p.url, n)
				}
				got[which] = tokensPerSecond(t, p.url, requests, 8)
				leave()
			}
			ratios = append(ratios, got[1]/got[0])
		}
		mean, squares := 0.0, 0.0
		for _, r := range ratios {
			mean += r / float64(len(ratios))
		}
		for _, r := range ratios {
			squares += (r - mean) * (r - mean)
		}
		noise := 2 * math.Sqrt(squares/float64(max(pairs-1, 1))/float64(pairs))
		t.Logf("%d viewers: ratio of the throughputs median %.4f, mean %.4f, two standard errors %.4f (%d pairs)", n, quantile(ratios, .5), mean, noise, pairs)
		if limit := map[int]float64{1: 0.99, most: 0.98}[n]; pairs > 1 && mean+noise < limit {
			t.Errorf("%d viewers cost %.1f %% of the throughput", n, 100*(1-mean))
		}
	}
	leave := viewers(t, p.url, most)
	res, err := http.Get(p.url + "/console/api/events")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if res.StatusCode != 503 || !strings.Contains(string(body), "too many consoles") || res.Header.Get("Retry-After") == "" {
		t.Errorf("one viewer too many got %s: %s", res.Status, body)
	}
	leave()
	// Within 5 s of the last one nobody is sampled for: two single looks in a row
	// cost two samples, whatever the time between them.
	samples := func() float64 {
		var s struct {
			Cost struct {
				Viewers int     `json:"viewers"`
				Samples float64 `json:"samples"`
				Ms      float64 `json:"ms_per_s"`
			} `json:"cost"`
		}
		if err := json.Unmarshal([]byte(fetch(t, http.DefaultClient, p.url+"/console/api/snapshot", "")), &s); err != nil {
			t.Fatal(err)
		}
		if s.Cost.Viewers != 1 {
			return -1
		}
		return s.Cost.Samples
	}
	var first float64
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if first = samples(); first >= 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("viewers are still there 5 s after they left")
		}
	}
	time.Sleep(2500 * time.Millisecond)
	if again := samples(); again != first+1 {
		t.Errorf("%g samples were taken in 2.5 s in which nobody watched", again-first-1)
	}
}
