package httpapi

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// pace slows steps down or stops them.
type pace struct {
	sleep atomic.Int64 // nanoseconds per step
	mu    sync.RWMutex // locked: no step is computed
}

func (p *pace) hook(point string) {
	if point == "step" {
		time.Sleep(time.Duration(p.sleep.Load()))
		p.mu.RLock()
		//lint:ignore SA2001 passing the gate is all
		p.mu.RUnlock()
	}
}

// ids returns n token ids that no other seed's prompt begins with.
func ids(seed, n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa((seed*7919 + i*104729) % 900))
	}
	return "[" + b.String() + "]"
}

// Two hundred requests end in five ways; every counter and every histogram must
// tell the same story about them.
func TestCountsAndTimesConserve(t *testing.T) {
	const slots, finished, streamed, queued, refused, invalid = 4, 100, 40, 20, 20, 20
	p := &pace{}
	began := time.Now()
	s := startServer(t, withDump, func(u *setup) {
		// Four sequences of up to 160 tokens in 24 blocks of 16: some are preempted.
		u.engine.MaxSeqs, u.engine.MaxQueuedReqs = slots, slots+queued
		u.engine.MaxModelLen, u.engine.NumBlocks = 256, 24
		u.engine.Fault = p.hook
	})
	var scheduled atomic.Int64 // prompt tokens of requests that were scheduled
	seed := 0
	body := func(prompt, out int, more string) string {
		seed++
		return fmt.Sprintf(`{"prompt":%s,"max_tokens":%d,"temperature":0,"ignore_eos":true%s}`, ids(seed, prompt), out, more)
	}
	finish := func(prompt, out int, stream bool) func() {
		more := ""
		if stream {
			more = `,"stream":true,"stream_options":{"include_usage":true}`
		}
		b := body(prompt, out, more)
		return func() {
			scheduled.Add(int64(prompt))
			r := s.post("/v1/completions", b)
			usage := r.answerOrLast().Usage
			if r.status != 200 || usage == nil || usage.Completion != out {
				t.Errorf("status %d, usage %+v, want %d output tokens", r.status, usage, out)
			}
		}
	}
	closeMidStream := func(prompt int) func() {
		b := body(prompt, 240-prompt, `,"stream":true`)
		return func() {
			scheduled.Add(int64(prompt))
			c := s.dial()
			defer c.Close()
			c.send(request("POST", "/v1/completions", b))
			if r, err := c.head(); err != nil || r.status != 200 {
				t.Errorf("head: %+v, %v", r, err)
			}
			for range 3 {
				if _, err := c.chunk(); err != nil {
					t.Error(err)
				}
			}
		}
	}

	// Most finish, beside the ones that are closed mid-stream. Steps are slow
	// enough that a close overtakes the 200 tokens that are left.
	p.sleep.Store(int64(2 * time.Millisecond))
	work := make(chan func())
	var wg sync.WaitGroup
	for range 2 * slots {
		wg.Go(func() {
			for f := range work {
				f()
			}
		})
	}
	for i := range finished - slots {
		work <- finish(20+i%40, 40+i%60, i%3 != 0)
		if i < streamed {
			work <- closeMidStream(10)
		}
	}
	close(work)
	wg.Wait()
	s.quiet()

	// All slots run and stand still: what comes next is queued, and what comes
	// after the last place is refused.
	p.sleep.Store(int64(20 * time.Millisecond))
	for range slots {
		f := finish(16, 60, true)
		wg.Go(f)
	}
	eventually(t, "the slots are taken", func() bool { return s.metric("vllm:num_requests_running") == slots })
	p.mu.Lock()
	waiting := make([]*client, queued)
	for i := range waiting {
		waiting[i] = s.dial()
		waiting[i].send(request("POST", "/v1/completions", body(8, 8, fmt.Sprintf(`,"stream":%t`, i%2 == 0))))
	}
	eventually(t, "they wait", func() bool { return s.metric("vllm:num_requests_waiting") == queued })
	for range refused {
		s.post("/v1/completions", body(8, 8, ``)).failure(503)
	}
	for _, c := range waiting {
		c.Close()
	}
	eventually(t, "nobody waits", func() bool { return s.metric("vllm:num_requests_waiting") == 0 })
	p.mu.Unlock()
	wg.Wait()
	for i := range invalid {
		bad := []string{`{`, `{"prompt":"a","n":0}`, `{"prompt":"a","temperature":-1}`, `{"prompt":[1],"max_tokens":5000}`}[i%4]
		s.post("/v1/completions", bad).failure(400)
	}
	s.quiet()

	const admitted = finished + streamed + queued
	eventually(t, "every waybill is booked", func() bool { return s.metric("vllm:request_success_total") == admitted })
	wall := time.Since(began).Seconds()
	for _, c := range []struct {
		name, label string
		want        float64
	}{
		{"waybill:requests_received_total", "", admitted + refused + invalid},
		{"waybill:requests_admitted_total", "", admitted},
		{"waybill:requests_refused_total", "", refused},
		{"waybill:requests_invalid_total", "", invalid},
		{"waybill:requests_unreadable_total", "", 0},
		{"vllm:request_success_total", `finished_reason="length"`, finished},
		{"vllm:request_success_total", `finished_reason="abort"`, streamed + queued},
		{"vllm:request_success_total", `finished_reason="error"`, 0},
		// A histogram has a sample for each sequence that got that far.
		{"vllm:e2e_request_latency_seconds_count", "", admitted},
		{"vllm:request_prompt_tokens_count", "", admitted},
		{"vllm:request_queue_time_seconds_count", "", finished + streamed},
		{"vllm:request_prefill_time_seconds_count", "", finished + streamed},
		{"vllm:time_to_first_token_seconds_count", "", finished + streamed},
		{"vllm:request_inference_time_seconds_count", "", finished},
		{"vllm:request_time_per_output_token_seconds_count", "", finished},
		{"waybill:request_phase_seconds_count", `phase="e2e"`, admitted},
		{"waybill:request_phase_seconds_count", `phase="queued"`, admitted}, // cut where it ended
		{"waybill:request_phase_seconds_count", `phase="tail"`, finished},
		{"vllm:prefix_cache_queries_total", "", float64(scheduled.Load())},
		// No two prompts begin alike, and who computes its own prompt again after a
		// preemption has found nothing.
		{"vllm:prefix_cache_hits_total", "", 0},
		{"vllm:num_requests_running", "", 0},
		{"vllm:num_requests_waiting", "", 0},
		{"waybill:places_in_use", "", 0},
		{"waybill:ledger_dropped_total", "", 0},
	} {
		if got := s.metric(c.name, c.label); got != c.want {
			t.Errorf("%s{%s} is %v, want %v", c.name, c.label, got, c.want)
		}
	}
	if n := s.metric("vllm:num_preemptions_total"); n == 0 {
		t.Error("nobody was preempted: the counts were not tried under KV pressure")
	}
	s.meansAreBelow(wall)

	reasons := map[string]int{}
	lines := strings.Split(strings.TrimSuffix(s.dump.String(), "\n"), "\n")
	for _, l := range lines {
		f := map[string]string{}
		for _, kv := range strings.Fields(l)[1:] {
			k, v, _ := strings.Cut(kv, "=")
			f[k] = v
			// Whether parts add up needs no tolerance: they are whole microseconds.
			if strings.HasPrefix(v, "-") {
				t.Errorf("%s is below zero: %s", k, l)
			}
		}
		reasons[f["reason"]]++
		sum := func(names ...string) (ms float64) {
			for _, n := range names {
				if f[n] != "" {
					ms += millis(t, f, n)
				}
			}
			return ms
		}
		for whole, parts := range map[string]float64{
			"ttft": sum("intake", "queued", "prefill", "egress"), "e2e": sum("intake", "queued", "prefill", "decode", "tail"),
		} {
			if d := parts - sum(whole); f[whole] != "" && (d > 0.0005 || d < -0.0005) {
				t.Errorf("the parts of %s are %.3f ms: %s", whole, parts, l)
			}
		}
	}
	if len(lines) != admitted || reasons["length"] != finished || reasons["abort"] != streamed+queued {
		t.Errorf("%d dump lines, %v; want %d", len(lines), reasons, admitted)
	}
	t.Logf("%.1f s, %.0f preemptions", wall, s.metric("vllm:num_preemptions_total"))
}

// meansAreBelow checks that no histogram of times has a mean above the time that
// has passed.
func (s *testServer) meansAreBelow(wall float64) {
	s.t.Helper()
	sums, n := map[string]float64{}, 0
	for _, l := range strings.Split(s.get("/metrics").text(), "\n") {
		name, value, _ := strings.Cut(l, "} ")
		series, labels, _ := strings.Cut(name, "{")
		v, _ := strconv.ParseFloat(value, 64)
		if sum, ok := strings.CutSuffix(series, "_seconds_sum"); ok {
			sums[sum+labels] = v
		}
		if count, ok := strings.CutSuffix(series, "_seconds_count"); ok && v > 0 {
			n++
			if mean := sums[count+labels] / v; mean < 0 || mean > wall {
				s.t.Errorf("%s{%s}: mean %.3f s in a run of %.3f s", series, labels, mean, wall)
			}
		}
	}
	if n < 20 {
		s.t.Errorf("only %d histograms of times have samples", n)
	}
}

// answerOrLast returns a collected answer, or the last event of a stream.
func (r *reply) answerOrLast() event {
	r.t.Helper()
	if !r.chunked {
		return r.answer()
	}
	all := r.events()
	return all[len(all)-1]
}
