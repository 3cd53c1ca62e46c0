package httpapi

import (
	"fmt"
	"io"
	"math"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// dumpForm is a dump line: the fields, their order, and three decimals.
var dumpForm = regexp.MustCompile(`^TTFTSPLIT rid=[A-Za-z0-9._:/-]+` +
	`( intake=\d+\.\d{3})?( queued=\d+\.\d{3})?( prefill=\d+\.\d{3})?( decode=\d+\.\d{3})?( e2e=\d+\.\d{3})?` +
	`( egress=\d+\.\d{3})?( ttft=\d+\.\d{3})?( tail=\d+\.\d{3})?` +
	` prompt=\d+ cached=\d+ out=\d+ steps_waited=\d+( kernel=\d+\.\d{3})? reason=(stop|length|abort|error)$`)

// checkLine checks that the parts of a line are the ones that must be there and
// add up exactly.
func checkLine(t *testing.T, line string) (reason string) {
	t.Helper()
	if !dumpForm.MatchString(line) {
		t.Errorf("not a dump line: %q", line)
		return ""
	}
	f := map[string]string{}
	for _, kv := range strings.Fields(line)[1:] {
		k, v, _ := strings.Cut(kv, "=")
		f[k] = v
	}
	us := func(names ...string) (sum int64) {
		for _, n := range names {
			if f[n] != "" {
				sum += int64(math.Round(millis(t, f, n) * 1000))
			}
		}
		return sum
	}
	if got, want := us("e2e"), us("intake", "queued", "prefill", "decode", "tail"); got != want {
		t.Errorf("e2e is %d µs, its parts %d: %s", got, want, line)
	}
	if f["ttft"] != "" {
		if got, want := us("ttft"), us("intake", "queued", "prefill", "egress"); got != want {
			t.Errorf("ttft is %d µs, its parts %d: %s", got, want, line)
		}
	}
	stream := strings.Contains(f["rid"], "stream")
	if r := f["reason"]; r == "stop" || r == "length" {
		for _, n := range []string{"intake", "queued", "prefill", "decode", "e2e", "tail"} {
			if f[n] == "" {
				t.Errorf("no %s in %s", n, line)
			}
		}
		if stream != (f["ttft"] != "") || stream != (f["egress"] != "") {
			t.Errorf("ttft and egress belong to streams: %s", line)
		}
	} else if f["tail"] != "" || f["intake"] == "" || f["e2e"] == "" {
		t.Errorf("cut off, yet: %s", line)
	}
	return f["reason"]
}

func TestDumpAddsUpAndNothingIsLost(t *testing.T) {
	s := startServer(t, withDump, func(u *setup) { u.engine.MaxSeqs, u.engine.MaxQueuedReqs = 4, 256 })
	want := map[string]string{} // rid → reason
	var mu sync.Mutex
	expect := func(rid, reason string, n int) {
		mu.Lock()
		defer mu.Unlock()
		for i := range n {
			name := rid
			if n > 1 {
				name = fmt.Sprintf("%s/%d", rid, i)
			}
			want[name] = reason
		}
	}
	received, invalid, refused := 0, 0, 0
	var wg sync.WaitGroup
	for i := range 6 {
		for _, k := range []struct {
			name, fields string
			n            int
			reason       string
		}{
			{"stream", `"stream":true,`, 1, "length"},
			{"whole", ``, 1, "length"},
			{"one-stream", `"stream":true,"max_tokens":1,`, 1, "length"},
			{"stop-stream", `"stream":true,"logit_bias":{"995":100},"ignore_eos":false,`, 1, "stop"},
			{"n-stream", `"stream":true,"n":2,`, 2, "length"},
			{"n-whole", `"n":2,"prompt":[[1,2],[3]],`, 4, "length"},
		} {
			rid := fmt.Sprintf("%s-%d", k.name, i)
			expect(rid, k.reason, k.n)
			received += k.n
			body := `{` + k.fields
			for _, f := range []string{`"prompt":[1,2,3]`, `"max_tokens":6`, `"ignore_eos":true`} {
				if name, _, _ := strings.Cut(f, ":"); !strings.Contains(k.fields, name) {
					body += f + ","
				}
			}
			wg.Go(func() {
				if r := s.post("/v1/completions", body+`"temperature":0}`, "X-Request-Id: "+rid); r.status != 200 {
					t.Errorf("%s: %d %s", rid, r.status, r.body)
				}
			})
		}
		rid := fmt.Sprintf("abort-stream-%d", i)
		expect(rid, "abort", 1)
		received++
		wg.Go(func() {
			c := s.dial()
			c.send(request("POST", "/v1/completions", `{"prompt":[1,2,3],"max_tokens":1000,"ignore_eos":true,"stream":true}`, "X-Request-Id: "+rid))
			if _, err := c.head(); err != nil {
				t.Error(err)
			}
			_, _ = c.chunk()
			c.Close()
		})
		for _, bad := range []struct {
			body string
			n    int
		}{{`{`, 1}, {`{"prompt":"a","n":0}`, 1}, {`{"prompt":"` + strings.Repeat("a ", 3000) + `","n":2}`, 2}} {
			received += bad.n
			invalid += bad.n
			wg.Go(func() { s.post("/v1/completions", bad.body, "X-Request-Id: bad").failure(400) })
		}
	}
	wg.Wait()
	s.quiet()
	// Cut off by the server while they run.
	for i := range 2 {
		var begun atomic.Int32
		rid := fmt.Sprintf("error-stream-%d", i)
		expect(rid, "error", 1)
		received++
		wg.Go(func() {
			c := s.dial()
			c.send(request("POST", "/v1/completions", `{"prompt":[1,2,3],"max_tokens":1000,"ignore_eos":true,"stream":true}`, "X-Request-Id: "+rid))
			if _, err := c.head(); err != nil {
				t.Error(err)
			}
			var last string
			for k := "x"; k != ""; {
				var err error
				if k, err = c.chunk(); err != nil {
					t.Errorf("cut off: %v", err)
					break
				}
				begun.Add(1)
				last += k
			}
			if !strings.HasSuffix(last, "data: [DONE]\n\n") || !strings.Contains(last, `"error"`) {
				t.Errorf("cut off: %s", last[max(0, len(last)-500):])
			}
		})
		eventually(t, "it streams", func() bool { return begun.Load() > 0 })
		s.e.CutAll()
		wg.Wait()
	}
	wg.Wait()
	s.e.Drain()
	for range 3 {
		received++
		refused++
		s.post("/v1/completions", short, "X-Request-Id: refused").failure(503)
	}
	s.quiet()
	eventually(t, "every line is out", func() bool { return strings.Count(s.dump.String(), "\n") >= len(want) })
	got := map[string]bool{}
	for _, line := range strings.Split(strings.TrimSuffix(s.dump.String(), "\n"), "\n") {
		rid := strings.TrimPrefix(strings.Fields(line)[1], "rid=")
		if reason := checkLine(t, line); got[rid] || want[rid] != reason {
			t.Errorf("again %v, reason %s, want %q: %s", got[rid], reason, want[rid], line)
		}
		got[rid] = true
	}
	if len(got) != len(want) {
		t.Errorf("%d lines, want %d", len(got), len(want))
	}
	for name, n := range map[string]int{
		"waybill:requests_received_total": received, "waybill:requests_invalid_total": invalid, "waybill:requests_refused_total": refused,
		"waybill:requests_admitted_total": received - invalid - refused, "vllm:request_success_total": len(want),
	} {
		if v := s.metric(name); v != float64(n) {
			t.Errorf("%s is %v, want %d", name, v, n)
		}
	}
	if v := s.metric("vllm:request_success_total", `finished_reason="abort"`); v != 6 {
		t.Errorf("%v aborts counted, want 6", v)
	}
}

// everyKind asks for one of everything and returns the raw answers.
func everyKind(s *testServer) []string {
	var out []string
	for i, body := range []string{
		short, strings.Replace(short, "{", `{"stream":true,`, 1), strings.Replace(short, "{", `{"n":2,"logprobs":2,`, 1),
		strings.Replace(short, "{", `{"stream":true,"n":2,"stream_options":{"include_usage":true},"return_token_ids":true,`, 1),
		`{"prompt":"x","temperature":-1}`, `{"prompt":"` + strings.Repeat("a ", 3000) + `","stream":true}`, `{`,
		`{"prompt":"the","echo":true,"max_tokens":0,"logprobs":1}`,
	} {
		c := s.dial()
		c.send(request("POST", "/v1/completions", body, fmt.Sprintf("X-Request-Id: same-%d", i), "Connection: close"))
		b, err := io.ReadAll(c.r)
		if err != nil {
			s.t.Fatal(err)
		}
		out = append(out, string(b))
	}
	return out
}

// masked hides what differs between any two runs: times, and where chunks begin.
func masked(raw string) string {
	for _, m := range []string{`"created":\d+`, `Date: [^\r]*`, `Server-Timing: [^\r]*`, `(?m)^[0-9a-f]+\r\n`, `Content-Length: \d+`} {
		raw = regexp.MustCompile(m).ReplaceAllString(raw, "")
	}
	// The choices of a request may take turns; each one's events keep their order.
	var zero, one, rest []string
	for _, l := range strings.Split(strings.ReplaceAll(raw, "\r\n", ""), "\n\n") {
		switch {
		case strings.Contains(l, `"index":0`):
			zero = append(zero, l)
		case strings.Contains(l, `"index":1`):
			one = append(one, l)
		default:
			rest = append(rest, l)
		}
	}
	return fmt.Sprintf("%q %q %q", zero, one, rest)
}

func TestClientsCannotTellWhetherTheDumpIsOn(t *testing.T) {
	on, off := startServer(t, withDump), startServer(t)
	a, b := everyKind(on), everyKind(off)
	for i := range a {
		if x, y := masked(a[i]), masked(b[i]); x != y {
			t.Errorf("answer %d:\n  with dump %s\nwithout    %s", i, x, y)
		}
	}
	on.quiet()
	if on.dump.String() == "" || off.dump.String() != "" {
		t.Errorf("dump on: %q, off: %q", on.dump.String(), off.dump.String())
	}
}

// stuckWriter is a stderr that nobody reads.
type stuckWriter struct{ free chan struct{} }

func (w stuckWriter) Write(p []byte) (int, error) {
	<-w.free
	return len(p), nil
}

func TestBlockedStderrHoldsNoRequest(t *testing.T) {
	w := stuckWriter{make(chan struct{})}
	s := startServer(t, func(u *setup) { u.engine.Dump = w })
	for range 5 {
		s.post("/v1/completions", short).answer()
	}
	s.quiet()
	close(w.free)
}

// A scrape reads what is there and waits for nobody, even while a step hangs.
func TestScrapesNeverBlock(t *testing.T) {
	hold := make(chan struct{})
	var once sync.Once
	release := func() { once.Do(func() { close(hold) }) }
	defer release()
	s := startServer(t, func(u *setup) {
		u.engine.MaxQueuedReqs = 3
		u.engine.Fault = func(point string) {
			if point == "step" {
				<-hold
			}
		}
	})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { s.post("/v1/completions", short).answer() })
	}
	eventually(t, "the server is full", func() bool { return s.metric("waybill:places_in_use") == 3 })
	for range 20 {
		for _, path := range []string{"/metrics", "/health", "/v1/models", "/version", "/ready"} {
			begin := time.Now()
			if r := s.get(path); r.status != 200 {
				t.Fatalf("%s while a step hangs and the server is full: %d %s", path, r.status, r.body)
			}
			if d := time.Since(begin); d > liveness/4 {
				t.Errorf("%s took %v", path, d)
			}
		}
	}
	r := s.get("/metrics")
	for _, name := range []string{
		"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:prompt_tokens_total",
		"vllm:generation_tokens_total", "vllm:num_preemptions_total", "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total",
		"vllm:request_success_total", "vllm:time_to_first_token_seconds_bucket", "vllm:inter_token_latency_seconds_bucket",
		"vllm:request_time_per_output_token_seconds_bucket", "vllm:e2e_request_latency_seconds_bucket", "vllm:request_queue_time_seconds_bucket",
		"vllm:request_prefill_time_seconds_bucket", "vllm:request_decode_time_seconds_bucket", "vllm:request_inference_time_seconds_bucket",
	} {
		if !strings.Contains(r.text(), "\n"+name+`{`) || !strings.Contains(r.text(), `model_name="tiny"`) {
			t.Errorf("/metrics has no %s", name)
		}
	}
	release()
	wg.Wait()
}
