package httpapi

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestClosingServerSendsConnectionClose(t *testing.T) {
	s := startServer(t)
	c := s.dial()
	c.send(request("POST", "/v1/completions", short))
	if r := c.must(); r.header["connection"] != "" {
		t.Errorf("Connection: %s before closing", r.header["connection"])
	}
	s.Closing()
	s.get("/ready").failure(503)
	if r := s.get("/health"); r.status != 200 {
		t.Errorf("/health while closing: %d", r.status)
	}
	c.send(request("POST", "/v1/completions", short))
	r := c.must()
	if r.answer(); r.header["connection"] != "close" {
		t.Errorf("Connection: %q while closing, want close", r.header["connection"])
	}
	if _, err := c.r.ReadByte(); err != io.EOF {
		t.Errorf("after Connection: close: %v", err)
	}
	if r := s.post("/v1/completions", strings.Replace(short, "{", `{"stream":true,`, 1)); r.header["connection"] != "close" {
		t.Errorf("stream while closing: Connection: %q", r.header["connection"])
	}
	s.e.Drain()
	r = s.post("/v1/completions", short)
	if r.failure(503); r.header["retry-after"] == "" || r.header["connection"] != "close" {
		t.Errorf("draining: headers %v", r.header)
	}
}

func TestKeepAliveComments(t *testing.T) {
	hold := make(chan struct{})
	var once sync.Once
	s := startServer(t, func(u *setup) {
		u.engine.KeepAlive = 20 * time.Millisecond
		u.engine.Fault = func(point string) {
			if point == "intake" {
				once.Do(func() { <-hold })
			}
		}
	})
	c := s.dial()
	c.send(request("POST", "/v1/completions", strings.Replace(short, "{", `{"stream":true,`, 1)))
	r, err := c.head()
	if err != nil || r.status != 200 {
		t.Fatalf("head %v, %v", r, err)
	}
	for i := range 3 {
		if k, err := c.chunk(); err != nil || k != ": keep-alive\n\n" {
			t.Fatalf("chunk %d is %q, %v", i, k, err)
		}
	}
	close(hold)
	var body strings.Builder
	for {
		k, err := c.chunk()
		if err != nil {
			t.Fatal(err)
		}
		if k == "" {
			break
		}
		body.WriteString(k)
	}
	events, _, err := splitEvents(body.String())
	if err != nil || len(events) != 4 {
		t.Errorf("%d events behind the comments, %v: %q", len(events), err, body.String())
	}
	// After a comment the status is sent: a failure is an error event.
	bad := s.post("/v1/completions", `{"stream":true,"prompt":"`+strings.Repeat("a ", 3000)+`"}`)
	if bad.status != 400 {
		t.Errorf("an early failure gets %d", bad.status)
	}
	collected := s.post("/v1/completions", short)
	if collected.answer(); strings.Contains(collected.text(), "keep-alive") {
		t.Error("a comment in a collected answer")
	}
}

func TestFailureBehindACommentIsAnErrorEvent(t *testing.T) {
	hold := make(chan struct{})
	s := startServer(t, func(u *setup) {
		u.engine.KeepAlive = 20 * time.Millisecond
		u.engine.Fault = func(point string) {
			if point == "intake" {
				<-hold
			}
		}
	})
	c := s.dial()
	c.send(request("POST", "/v1/completions", `{"stream":true,"prompt":"`+strings.Repeat("a ", 3000)+`"}`))
	if r, err := c.head(); err != nil || r.status != 200 {
		t.Fatalf("head %v, %v", r, err)
	}
	if k, err := c.chunk(); err != nil || k != ": keep-alive\n\n" {
		t.Fatalf("%q, %v", k, err)
	}
	close(hold)
	var body string
	for {
		k, err := c.chunk()
		if err != nil {
			t.Fatal(err)
		}
		if k == "" {
			break
		}
		body += k
	}
	events, _, err := splitEvents(body)
	if err != nil || len(events) != 1 || !strings.Contains(events[0], "context_length_exceeded") {
		t.Errorf("events %q, %v", events, err)
	}
}

func TestNothingIsSentBeforeTheFirstTextByDefault(t *testing.T) {
	hold := make(chan struct{})
	s := startServer(t, func(u *setup) {
		u.engine.Fault = func(point string) {
			if point == "step" {
				<-hold
			}
		}
	})
	c := s.dial()
	c.send(request("POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"stream":true,"max_tokens":3,"ignore_eos":true}`))
	_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	if b, err := c.r.Peek(1); err == nil {
		t.Errorf("%q was sent before there was text", b)
	}
	close(hold)
	_ = c.SetReadDeadline(time.Now().Add(liveness))
	c.r.Reset(c.Conn)
	c.must().events()
}

func TestOverload(t *testing.T) {
	for _, status := range []int{503, 429} {
		release := make(chan struct{})
		var held atomic.Bool
		held.Store(true)
		var taken atomic.Int64 // into Intake, where work begins
		const places, extra = 6, 9
		s := startServer(t, func(u *setup) {
			u.engine.MaxQueuedReqs, u.engine.MaxSeqs = places, 2
			u.http.OverloadStatus = status
			u.engine.Fault = func(point string) {
				if point == "step" && held.Load() {
					<-release
				}
				if point == "tokenize" {
					taken.Add(1)
				}
			}
		})
		taken.Store(0)
		var mu sync.Mutex
		counts := map[int]int{}
		var wg sync.WaitGroup
		for range places + extra {
			wg.Go(func() {
				begin := time.Now()
				r := s.post("/v1/completions", short)
				if r.status != 200 {
					r.failure(status)
					if r.header["retry-after"] == "" {
						t.Errorf("%d without Retry-After", r.status)
					}
					if d := time.Since(begin); d > liveness/2 {
						t.Errorf("refused after %v", d)
					}
				}
				mu.Lock()
				counts[r.status]++
				mu.Unlock()
			})
		}
		eventually(t, "the extra requests are refused", func() bool { return s.metric("waybill:requests_refused_total") == extra })
		// A refusal costs no work, and full is neither dead nor unready.
		if n := taken.Load(); n > places {
			t.Errorf("%d requests were tokenized, %d have places", n, places)
		}
		for _, path := range []string{"/health", "/ready"} {
			if r := s.get(path); r.status != 200 {
				t.Errorf("%s of a full server is %d: %s", path, r.status, r.body)
			}
		}
		held.Store(false)
		close(release)
		wg.Wait()
		if counts[200] != places || counts[status] != extra {
			t.Errorf("%v, want %d served and %d refused", counts, places, extra)
		}
		s.quiet()
		for range places {
			wg.Go(func() { s.post("/v1/completions", short).answer() })
		}
		wg.Wait()
		s.post("/v1/completions", `{"prompt":"a","n":7}`).failure(400)
	}
}

// Retry-After is what the measured rate says, and every refused client has a turn
// of its own.
func TestRetryAfterGrowsWithTheRefused(t *testing.T) {
	p := &pace{}
	s := startServer(t, func(u *setup) {
		u.engine.MaxQueuedReqs, u.engine.MaxSeqs = 2, 1
		u.engine.Fault = p.hook
	})
	p.sleep.Store(int64(150 * time.Millisecond)) // two steps each: some 0.3 s per place
	one := `{"prompt":[1,2,3],"max_tokens":2,"ignore_eos":true}`
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			// A probe of below may have its place for a moment.
			for served := 0; served < 4; {
				if s.post("/v1/completions", one).status == 200 {
					served++
				}
			}
		})
	}
	eventually(t, "some are served", func() bool { return s.metric("vllm:request_success_total") >= 3 })
	var said []int
	for range 40 {
		r := s.post("/v1/completions", one)
		if r.status == 200 {
			continue // between two requests of a client
		}
		r.failure(503)
		n, err := strconv.Atoi(r.header["retry-after"])
		if err != nil || n < 1 || n > 60 {
			t.Fatalf("Retry-After %q", r.header["retry-after"])
		}
		said = append(said, n)
	}
	wg.Wait()
	if len(said) < 20 || !slices.IsSorted(said) || said[0] > 3 || said[len(said)-1] < 5 {
		t.Errorf("Retry-After of %d refused clients at some 0.3 s a place: %v", len(said), said)
	}
}

func TestTimingsComeBackWithTheAnswer(t *testing.T) {
	s := startServer(t, func(u *setup) { u.http.PerRequestMetrics = true })
	part := regexp.MustCompile(`(\w+);dur=([0-9.]+)`)
	r := s.post("/v1/completions", short)
	sum, total := 0.0, 0.0
	var names []string
	for _, m := range part.FindAllStringSubmatch(r.header["server-timing"], -1) {
		var v float64
		fmt.Sscan(m[2], &v)
		if names = append(names, m[1]); m[1] == "total" {
			total = v
		} else {
			sum += v
		}
	}
	if !slices.Equal(names, []string{"intake", "queued", "prefill", "decode", "finish", "total"}) || sum-total > 0.0005 || total-sum > 0.0005 || total <= 0 {
		t.Errorf("Server-Timing %q: parts add up to %v", r.header["server-timing"], sum)
	}
	stream := func(more string) []event {
		t.Helper()
		return s.post("/v1/completions", strings.Replace(short, "{", `{"stream":true,`+more, 1)).events()
	}
	where := func(events []event) (at []int) {
		for i, e := range events {
			if e.Timings != nil {
				at = append(at, i)
			}
		}
		return at
	}
	if at := where(stream("")); at != nil {
		t.Errorf("unasked: timings in events %v", at)
	}
	e := stream(`"timings":true,`)
	if at := where(e); !slices.Equal(at, []int{3}) {
		t.Errorf("timings in events %v, want the finish", at)
	} else if g := e[3].Timings; g["predicted_n"] != 3 || g["prompt_n"] != 3 || g["prefill_ms"] <= 0 || g["decode_ms"] <= 0 || g["intake_ms"] <= 0 {
		t.Errorf("timings %v", g)
	}
	if at := where(stream(`"stream_options":{"include_usage":true},`)); !slices.Equal(at, []int{4}) {
		t.Errorf("timings in events %v, want the usage event", at)
	}
	if a := s.post("/v1/completions", strings.Replace(short, "{", `{"timings":true,`, 1)).answer(); a.Timings["decode_ms"] <= 0 {
		t.Errorf("collected: timings %v", a.Timings)
	}
}

func TestShutdownRightAfterTheStartEndsServe(t *testing.T) {
	for i := range 20 {
		// The cleanup shuts down what may not have begun to accept.
		t.Run(fmt.Sprint(i), func(t *testing.T) { startServer(t) })
	}
}

// A bound on the output is no estimate: requests that may write to the end of the
// context run at once in a pool that could not hold them all at that length.
func TestLargeMaxTokensHoldNobodyBack(t *testing.T) {
	const slots = 8
	p := &pace{}
	s := startServer(t, func(u *setup) {
		u.engine.MaxSeqs, u.engine.MaxModelLen, u.engine.NumBlocks, u.engine.Fault = slots, 1024, 64, p.hook
	})
	p.sleep.Store(int64(5 * time.Millisecond))
	var clients []*client
	for i := range slots {
		c := s.dial()
		c.send(request("POST", "/v1/completions", fmt.Sprintf(`{"prompt":%s,"max_tokens":1000,"ignore_eos":true,"stream":true}`, ids(i, 8))))
		clients = append(clients, c)
	}
	eventually(t, "all run", func() bool { return s.metric("vllm:num_requests_running") == slots })
	if n := s.metric("vllm:num_requests_waiting"); n != 0 {
		t.Errorf("%v wait although there is room", n)
	}
	for _, c := range clients {
		if r, err := c.head(); err != nil || r.status != 200 {
			t.Errorf("%+v, %v", r, err)
		}
		c.Close()
	}
	s.quiet()
}

// Who waits is told apart by what for: room, or the prompt that a sibling computes.
func TestReasonsForWaitingAreTold(t *testing.T) {
	p := &pace{}
	s := startServer(t, func(u *setup) { u.engine.MaxSeqs, u.engine.Fault = 4, p.hook })
	reason := func(r string) float64 {
		return s.metric("vllm:num_requests_waiting_by_reason", `reason="`+r+`"`)
	}
	p.mu.Lock() // the leader's first step stands still
	var wg sync.WaitGroup
	wg.Go(func() {
		s.post("/v1/completions", fmt.Sprintf(`{"prompt":%s,"max_tokens":4,"ignore_eos":true,"n":3}`, ids(1, 100))).answer()
	})
	eventually(t, "two wait for their sibling", func() bool { return reason("deferred") == 2 && reason("capacity") == 0 })
	for i := range 5 {
		wg.Go(func() {
			s.post("/v1/completions", fmt.Sprintf(`{"prompt":%s,"max_tokens":4,"ignore_eos":true}`, ids(10+i, 20))).answer()
		})
	}
	eventually(t, "five wait for room", func() bool {
		return reason("capacity") == 5 && reason("deferred") == 2 && s.metric("vllm:num_requests_waiting") == 7
	})
	p.mu.Unlock()
	wg.Wait()
	s.quiet()
	if a, b := reason("capacity"), reason("deferred"); a != 0 || b != 0 {
		t.Errorf("at rest %v wait for room and %v for siblings", a, b)
	}
}
