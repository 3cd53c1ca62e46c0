package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// goldenAsk is a request whose answer every test compares before and after.
const goldenAsk = `{"prompt":"The capital of France is","max_tokens":24,"temperature":0,"ignore_eos":true}`

// golden returns the server's answer to goldenAsk.
func (p *process) golden() string {
	p.t.Helper()
	a, err := p.talkTo("/v1/completions", goldenAsk)
	if err != nil || a.status != 200 || !strings.Contains(a.text(), "Paris") {
		p.t.Fatalf("%+v, %v", a, err)
	}
	return a.text()
}

// A client that closes in the middle of a stream costs nothing from then on, and a
// thousand of them leave nothing behind.
func TestStreamsThatAreClosedLeaveNothing(t *testing.T) {
	p := serveDefault(t, nil, "--log-format", "none")
	want := p.golden()
	aborts := func() float64 { return p.metric("vllm:request_success_total", `finished_reason="abort"`) }
	one := func(i, events int) {
		c, err := p.ask("/v1/completions", completion(prompt(i, 8), 4000, true))
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		if _, err := c.answer(func(n int) bool { return n < events }); err != nil {
			t.Error(err)
		}
	}
	began := aborts()
	one(0, 5)
	took := within(t, time.Second, "the stream has ended", func() bool {
		return p.metric("vllm:num_requests_running", "") == 0 && aborts() == began+1
	})
	tokens := p.metric("vllm:generation_tokens_total", "")
	time.Sleep(100 * time.Millisecond)
	if now := p.metric("vllm:generation_tokens_total", ""); now != tokens {
		t.Errorf("%v tokens were generated for nobody", now-tokens)
	}
	many := 1000
	if testing.Short() {
		many = 200
	}
	run := func(n, from int) {
		var wg sync.WaitGroup
		var next atomic.Int64
		for range 20 {
			wg.Go(func() {
				for k := next.Add(1); k <= int64(n); k = next.Add(1) {
					one(from+int(k), 1+int(k)%3)
				}
			})
		}
		wg.Wait()
		p.idle()
	}
	run(100, 1) // what is allocated once
	before := p.footprint()
	run(many, 1000)
	var after footprint
	within(t, 10*time.Second, "connections are gone", func() bool {
		after = p.footprint()
		return after.fds <= before.fds+2 && after.gorou <= before.gorou+3
	})
	if after.rss > before.rss+64<<20 || after.threads > before.threads+4 {
		t.Errorf("before %v, after %v", before, after)
	}
	if got := p.golden(); got != want {
		t.Errorf("the next answer is %q, want %q", got, want)
	}
	if n := aborts(); n != began+1+100+float64(many) {
		t.Errorf("%v aborts were counted, want %d", n-began, 101+many)
	}
	if u := p.metric("vllm:kv_cache_usage_perc", ""); u != 0 {
		t.Errorf("KV blocks in use: %v", u)
	}
	t.Logf("one abort was booked after %v; before %v; after %d: %v", took, before, many, after)
}

// A client that closes before the first token is noticed in every phase, and who
// runs beside it sees nothing of it.
func TestClientsThatCloseBeforeTheFirstToken(t *testing.T) {
	p := serveDefault(t, nil, "--max-num-seqs", "2", "--log-format", "none")
	beside := completion(prompt(7, 20), 150, true)
	ref, err := p.talkTo("/v1/completions", beside)
	if err != nil || !ref.ended() {
		t.Fatal(err)
	}
	watched := func(f func()) {
		t.Helper()
		done := make(chan *talk, 1)
		go func() {
			a, err := p.talkTo("/v1/completions", beside)
			if err != nil {
				t.Error(err)
			}
			done <- a
		}()
		time.Sleep(50 * time.Millisecond)
		f()
		if a := <-done; a == nil || a.text() != ref.text() || !a.ended() {
			t.Error("the stream beside it changed")
		}
	}
	aborts := func() float64 { return p.metric("vllm:request_success_total", `finished_reason="abort"`) }
	asked := func() float64 { return p.metric("vllm:prompt_tokens_total", "") }
	watched(func() { // in the queue
		filler, err := p.ask("/v1/completions", completion(prompt(8, 10), 4000, true))
		if err != nil {
			t.Fatal(err)
		}
		defer filler.Close()
		within(t, 5*time.Second, "both slots are taken", func() bool { return p.metric("vllm:num_requests_running", "") == 2 })
		before := asked()
		c, err := p.ask("/v1/completions", completion(prompt(9, 2000), 5, true))
		if err != nil {
			t.Fatal(err)
		}
		within(t, 5*time.Second, "it waits", func() bool { return p.metric("vllm:num_requests_waiting", "") == 1 })
		c.Close()
		d := within(t, 100*time.Millisecond+50*time.Millisecond, "nobody waits", func() bool { return p.metric("vllm:num_requests_waiting", "") == 0 })
		if n := asked() - before; n >= 2000 {
			t.Errorf("%v prompt tokens are counted for a request that was never computed", n)
		}
		t.Logf("in the queue: gone after %v", d)
	})
	p.idle()
	within(t, 5*time.Second, "both aborts are booked", func() bool { return aborts() == 2 })
	for i, stream := range []bool{true, false} { // in prefill, and collected
		n := aborts()
		c, err := p.ask("/v1/completions", completion(prompt(20+i, 6000), 1000, stream))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(700 * time.Millisecond)
		c.Close()
		d := within(t, 300*time.Millisecond, "prefill has stopped", func() bool {
			return p.metric("vllm:num_requests_running", "") == 0 && aborts() == n+1
		})
		t.Logf("in prefill (stream %t): gone after %v", stream, d)
	}
	watched(func() { // collected, in decode
		n := aborts()
		c, err := p.ask("/v1/completions", completion(prompt(30, 10), 4000, false))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		c.Close()
		d := within(t, 300*time.Millisecond, "the abort is booked", func() bool { return aborts() == n+1 })
		t.Logf("collected, in decode: gone after %v", d)
	})
}

// Characters are whole, and a repeated piece of one costs no more at the end.
func TestCharactersOfALongAnswer(t *testing.T) {
	p := serveDefault(t, nil, "--log-format", "none")
	ask := `{"prompt":"Repeat: 🌍🚀 日本語 – naïve 🌍🚀 日本語 – naïve 🌍🚀 日本語","max_tokens":120,"temperature":0,"ignore_eos":true,"logprobs":0,"stream":%t}`
	whole, err := p.talkTo("/v1/completions", fmt.Sprintf(ask, false))
	if err != nil || whole.status != 200 {
		t.Fatalf("%+v %v", whole, err)
	}
	streamed, err := p.talkTo("/v1/completions", fmt.Sprintf(ask, true))
	// The bound may cut the last character; then both say so.
	if err != nil || streamed.text() != whole.text() || strings.Contains(strings.TrimSuffix(streamed.text(), "\ufffd"), "\ufffd") {
		t.Errorf("streamed %q, whole %q, %v", streamed.text(), whole.text(), err)
	}
	// One byte of a character that never comes, again and again: no text may be
	// shown, and it must not get slower.
	res, err := p.talkTo("/tokenize", `{"prompt":"🌍","add_special_tokens":false}`)
	if err != nil {
		t.Fatal(err)
	}
	var first int
	if _, err := fmt.Sscanf(res.body[strings.Index(res.body, `"tokens":[`):], `"tokens":[%d`, &first); err != nil {
		t.Fatalf("%s: %v", res.body, err)
	}
	n := 900
	if *full {
		n = 4000
	}
	a, err := p.talkTo("/v1/completions", fmt.Sprintf(`{"prompt":[1,2,3],"max_tokens":%d,"temperature":0,"ignore_eos":true,"stream":true,"logit_bias":{"%d":100},"return_token_ids":true}`, n, first))
	if err != nil || !a.ended() {
		t.Fatal(err)
	}
	if len(a.events) < n {
		t.Fatalf("%d events for %d tokens", len(a.events), n)
	}
	// With its context a step gets longer whatever its token is: the control shows by
	// how much.
	control, err := p.talkTo("/v1/completions", completion("[1,2,3]", n, true))
	if err != nil || !control.ended() {
		t.Fatal(err)
	}
	late := func(a *talk) time.Duration {
		var all []time.Duration
		for k := len(a.events) - n/3; k < len(a.events)-1; k++ {
			all = append(all, a.events[k].at.Sub(a.events[k-1].at))
		}
		sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
		return atQuantile(all, .5)
	}
	if got, want := late(a), late(control); got > want*3/2 {
		t.Errorf("at the end a token takes %v, an ordinary one %v", got, want)
	}
	t.Logf("%d repetitions of token %d in %v: %d events", n, first, a.events[len(a.events)-1].at.Sub(a.head), len(a.events))
}

// What is wrong gets an error with a status, never a stream, and the prompt that is
// too long gets it in the time of its tokenization.
func TestErrorsComeBeforeTheStream(t *testing.T) {
	p := serveDefault(t, nil, "--log-format", "none")
	long := strings.Repeat("some words and 12 numbers, ", 40000/27*5)
	for _, c := range []struct {
		body   string
		status int
	}{
		{`{"stream":true,"prompt":"` + long + `"}`, 400}, {`{"stream":true,"model":"other","prompt":"a"}`, 404}, {`{"stream":true,"prompt":`, 400},
		{`{"stream":true,"prompt":"a","n":0}`, 400}, {`{"stream":true,"prompt":"a","temperature":-1}`, 400},
		{`{"stream":true,"prompt":"a","response_format":{"type":"json_schema","json_schema":{"schema":{"type":7}}}}`, 400},
	} {
		began := time.Now()
		a, err := p.talkTo("/v1/completions", c.body)
		took := time.Since(began)
		if err != nil {
			t.Fatal(err)
		}
		e := parsed(a.body).Error
		if a.status != c.status || a.header["content-type"] != "application/json" || e == nil || e.Message == "" || e.Type == "" || e.Code == nil {
			t.Errorf("%.60s: status %d, %v, %.200s", c.body, a.status, a.header, a.body)
		}
		if len(c.body) < 1000 {
			continue
		}
		began = time.Now()
		if _, err := p.talkTo("/tokenize", `{"prompt":"`+long+`"}`); err != nil {
			t.Fatal(err)
		}
		if whole := time.Since(began); took > whole+50*time.Millisecond {
			t.Errorf("refused after %v; tokenizing takes %v", took, whole)
		} else {
			t.Logf("%d bytes refused after %v; tokenizing all takes %v", len(long), took, whole)
		}
	}
}

// A stop string over token borders ends the text before it and delays nothing else.
func TestStopStringsAtTokenBorders(t *testing.T) {
	p := serveDefault(t, nil, "--log-format", "none")
	ask := func(stop string) *talk {
		t.Helper()
		a, err := p.talkTo("/v1/completions", `{"prompt":"Once upon a time","max_tokens":60,"temperature":0,"ignore_eos":true,"stream":true`+stop+`}`)
		if err != nil || !a.ended() {
			t.Fatalf("%v", err)
		}
		return a
	}
	text := ask("").text()
	for _, cut := range [][2]int{{40, 46}, {25, 27}, {60, 75}} {
		stop := text[cut[0]:cut[1]]
		a := ask(fmt.Sprintf(`,"stop":["\n\nEND",%q]`, stop))
		want := text[:strings.Index(text, stop)]
		if a.text() != want || !strings.Contains(a.body, `"finish_reason":"stop"`) {
			t.Errorf("stop %q: %q, want %q", stop, a.text(), want)
		}
		if w := parsed(a.events[0].data); len(w.Choices) == 0 || w.Choices[0].Text == "" {
			t.Errorf("stop %q: the first event is empty: %s", stop, a.events[0].data)
		}
	}
	if a := ask(`,"stop":["XYZ","\n\nEND"]`); a.text() != text {
		t.Errorf("a stop that never comes changed the text: %q", a.text())
	}
}

// Of S+Q+50 requests at once exactly 50 are refused, at once and before any work.
func TestOverloadIsRefusedExactlyAndAtOnce(t *testing.T) {
	const slots, places, extra = 4, 24, 50
	p := serveDefault(t, nil, "--log-format", "none", "--max-num-seqs", fmt.Sprint(slots), "--max-num-queued-reqs", fmt.Sprint(places))
	rounds, length := 2, 300
	if *full {
		rounds, length = 5, 2000
	}
	bodies := make([]string, places+extra)
	for i := range bodies {
		bodies[i] = completion(prompt(i, length), 4, i%2 == 0)
	}
	for round := range rounds {
		var mu sync.Mutex
		counts := map[int]int{}
		quiet := p.load()
		var slow []time.Duration
		var wg sync.WaitGroup
		gate := make(chan struct{})
		var ready sync.WaitGroup
		for i := range bodies {
			ready.Add(1)
			wg.Go(func() {
				c, err := p.dial()
				ready.Done()
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				<-gate
				began := time.Now()
				if _, err := io.WriteString(c, wire("POST", "/v1/completions", bodies[i])); err != nil {
					t.Error(err)
					return
				}
				leave := round > 0 && i%2 == 1
				if leave {
					// Half go away once they know that they were not refused.
					_ = c.SetReadDeadline(time.Now().Add(400 * time.Millisecond))
				}
				a, err := c.answer(nil)
				if leave && err != nil {
					mu.Lock()
					counts[0]++
					mu.Unlock()
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				counts[a.status]++
				if a.status == 503 {
					slow = append(slow, time.Since(began))
					if a.header["retry-after"] == "" || parsed(a.body).Error == nil {
						t.Errorf("a refusal without Retry-After or error: %v %s", a.header, a.body)
					}
				}
			})
		}
		ready.Wait()
		close(gate)
		wg.Wait()
		sort.Slice(slow, func(i, j int) bool { return slow[i] < slow[j] })
		t.Logf("round %d: %v; refused after p50 %v, max %v", round, counts, atQuantile(slow, .5), atQuantile(slow, 1))
		if counts[503] != extra || counts[200]+counts[0] != places {
			t.Errorf("round %d: %v, want %d refused and %d served", round, counts, extra, places)
		}
		// All 74 clients, the server and its computing share the cores: the bound is for
		// nine in ten there, and twice that for the last.
		late := atQuantile(slow, .9) > 100*time.Millisecond || atQuantile(slow, 1) > 200*time.Millisecond
		if late && !p.disturbed(t, quiet) {
			t.Errorf("round %d: refused after up to %v", round, atQuantile(slow, 1))
		}
		p.idle()
	}
	if n := p.metric("waybill:requests_refused_total", ""); n != float64(rounds*extra) {
		t.Errorf("%v were counted as refused", n)
	}
}

// Health, metrics and models are answered while a long prompt is computed and
// others send large bodies.
func TestControlPlaneUnderLoad(t *testing.T) {
	p := serveDefault(t, nil, "--log-format", "none")
	big := `{"prompt":"a","user":"` + strings.Repeat("x", 1<<20) + `","max_tokens":1,"n":0}`
	quiet := p.load()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			c, err := p.ask("/v1/completions", completion(prompt(i, 7000), 1, true))
			if err != nil {
				return
			}
			go func() { <-stop; c.Close() }()
			_, _ = c.answer(nil)
			c.Close()
		}
	})
	for range 20 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(250 * time.Millisecond):
				}
				if a, err := p.talkTo("/v1/completions", big); err != nil || a.status != 400 {
					t.Errorf("a large body: %v", err)
					return
				}
			}
		})
	}
	var took []time.Duration
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}
	end := time.Now().Add(4 * time.Second)
	for time.Now().Before(end) {
		for _, path := range []string{"/health", "/metrics", "/v1/models", "/ready"} {
			began := time.Now()
			res, err := client.Get(p.url + path)
			if err != nil || res.StatusCode != 200 {
				t.Fatalf("%s: %v %v", path, res, err)
			}
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
			took = append(took, time.Since(began))
			time.Sleep(12 * time.Millisecond)
		}
	}
	close(stop)
	wg.Wait()
	sort.Slice(took, func(i, j int) bool { return took[i] < took[j] })
	t.Logf("%d control requests: p50 %v, p99 %v, max %v", len(took), atQuantile(took, .5), atQuantile(took, .99), atQuantile(took, 1))
	if d := atQuantile(took, .99); d > 50*time.Millisecond && !p.disturbed(t, quiet) {
		t.Errorf("p99 of control requests is %v, bound 50 ms", d)
	}
}

// Two requests in one write: the first answer comes before the second is computed.
func TestPipelinedAnswersComeInOrderAndAtOnce(t *testing.T) {
	p := serveDefault(t, []string{"VT_TTFT_DUMP=1"})
	c, err := p.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, wire("POST", "/v1/completions", completion(prompt(1, 10), 2, false), "X-Request-Id: pipe-1")+
		wire("POST", "/v1/completions", completion(prompt(2, 10), 200, false), "X-Request-Id: pipe-2")); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	one, err := c.answer(nil)
	first := time.Since(began)
	if err != nil || one.header["x-request-id"] != "pipe-1" {
		t.Fatalf("%+v, %v", one, err)
	}
	two, err := c.answer(nil)
	second := time.Since(began)
	if err != nil || two.header["x-request-id"] != "pipe-2" || first > second/3 {
		t.Fatalf("answers after %v and %v, %+v, %v", first, second, two, err)
	}
	within(t, 5*time.Second, "both are in the dump", func() bool { return strings.Count(p.log(), "TTFTSPLIT rid=pipe-") == 2 })
	d := parseDump(t, p.log())
	if d["pipe-2"]["out"] != 200 || d["pipe-2"]["intake"] > second.Seconds()*1e3/2 {
		t.Errorf("the second one's times: %v", d["pipe-2"])
	}
	t.Logf("answers after %v and %v", first, second)
}

// Bodies that are hostile leave no memory behind.
func TestHostileBodiesLeaveNoMemory(t *testing.T) {
	p := serveDefault(t, nil, "--log-format", "none")
	p.golden()
	before := p.footprint()
	fill := strings.Repeat(`{"a":[1,2,3,"xxxxxxxxxxxxxxxxxxxxxx"]},`, (20<<20)/39)
	var wg sync.WaitGroup
	for k := range 6 {
		wg.Go(func() {
			for range 2 {
				for _, body := range []string{`{"prompt":"a","user":[` + fill + `1]}`, `{"messages":[` + fill + `]}`, `{"prompt":"` + strings.Repeat("a b ", 5<<20) + `"}`} {
					if _, err := p.talkTo([]string{"/v1/completions", "/v1/chat/completions"}[k%2], body); err != nil {
						t.Errorf("%.30s: %v", body, err)
					}
				}
			}
		})
	}
	wg.Wait()
	p.idle()
	peak := p.footprint()
	var after footprint
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if after = p.footprint(); after.rss < before.rss+64<<20 {
			break
		}
	}
	if after.rss >= before.rss+64<<20 {
		t.Errorf("memory is not given back")
	}
	t.Logf("before %v; after the last body %v; later %v", before, peak, after)
}

// Slow senders of headers and bodies are cut off in the documented time; the check
// itself does not wait for it: that the server still serves beside them is seen.
func TestSlowSendersHoldNobodyUp(t *testing.T) {
	p := serveDefault(t, nil, "--log-format", "none")
	var slow []net.Conn
	for i := range 200 {
		c, err := p.dial()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		slow = append(slow, c)
		text := wire("POST", "/v1/completions", completion(prompt(i, 200), 2, false))
		if _, err := io.WriteString(c, text[:20+i%(len(text)-40)]); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	p.golden()
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("an answer took %v beside %d slow senders", d, len(slow))
	}
	if n := p.metric("waybill:places_in_use", ""); n != 0 {
		t.Errorf("slow senders hold %v places", n)
	}
}

// A server that says it is ready answers its first request as fast as any other.
func TestTheFirstRequestIsAnOrdinaryOne(t *testing.T) {
	p := serveDefault(t, nil, "--log-format", "none")
	quiet := p.load()
	ttft := func(seed int) time.Duration {
		t.Helper()
		began := time.Now()
		a, err := p.talkTo("/v1/completions", completion(prompt(seed, 50), 3, true))
		if err != nil || !a.ended() {
			t.Fatal(err)
		}
		return a.firstText().Sub(began)
	}
	first := ttft(0)
	var later []time.Duration
	for i := range 9 {
		later = append(later, ttft(i+1))
	}
	sort.Slice(later, func(i, j int) bool { return later[i] < later[j] })
	t.Logf("first %v, later p50 %v", first, atQuantile(later, .5))
	if !p.disturbed(t, quiet) && first > 3*atQuantile(later, .5) {
		t.Errorf("the first request took %v, later ones %v", first, later)
	}
}
