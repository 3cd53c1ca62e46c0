package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"waybill/actors"
	"waybill/actors/sched"
	"waybill/cmd/ttft"
	"waybill/httpapi"
	"waybill/kernels"
	"waybill/kernels/cpu"
	"waybill/model"
)

// plantedDelay is long against everything that the tiny model does.
const plantedDelay = 5 * time.Millisecond

// plantedTokens is the output of a request: some steps, so that decode and the
// end lie apart from the first token.
const plantedTokens = 8

// planted sleeps in one place, once per request. The workload is one client in
// a closed loop, so what comes next belongs to the request that was admitted last.
type planted struct {
	place string
	armed atomic.Bool // a request was admitted and has not met its delay yet
}

// at sleeps if this is the place.
func (p *planted) at(place string) {
	if p.place == place {
		time.Sleep(plantedDelay)
	}
}

// engine is the engine's hook. Intake's points come once per request; the
// Scheduler and the Detokenizers pass theirs at every step, so the delay is for
// the first pass after the request's Admit.
func (p *planted) engine(point string) {
	switch point {
	case "admit":
		p.armed.Store(true)
		p.at(point)
	case "decide", "detokenizer":
		if p.place == point && p.armed.Swap(false) {
			time.Sleep(plantedDelay)
		}
	default:
		p.at(point)
	}
}

// Render makes planted a chat template.
func (p *planted) Render(raw json.RawMessage, _ httpapi.ChatOptions) (string, []actors.Span, error) {
	p.at("render")
	return string(raw), nil, nil
}

// plantedExecutor sleeps in the launch of a prompt's step or of the third decode
// step: launched, the device is busy for longer.
type plantedExecutor struct {
	actors.Executor
	*planted
}

func (x plantedExecutor) Launch(plan *sched.Plan, keep []bool, results []sched.Result) {
	for i := range plan.Rows {
		switch r := &plan.Rows[i]; {
		case !keep[i]:
		case r.Start < r.PromptLen:
			x.at("prefill")
		case r.Generated == 3:
			x.at("third step")
		}
	}
	x.Executor.Launch(plan, keep, results)
}

// plantedListener accepts connections that may be slow.
type plantedListener struct {
	net.Listener
	*planted
}

func (l plantedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &plantedConn{Conn: c, planted: l.planted}, err
}

// plantedConn reads the first byte of each request alone, and may be slow with
// the others, or with writing a stream's head or end.
type plantedConn struct {
	net.Conn
	*planted
	reads int // of this request
}

func (c *plantedConn) Read(p []byte) (int, error) {
	if c.reads++; c.reads == 1 {
		p = p[:1]
	} else if c.reads == 2 {
		c.at("receive")
	}
	return c.Conn.Read(p)
}

func (c *plantedConn) Write(p []byte) (int, error) {
	c.reads = 0
	if bytes.HasPrefix(p, []byte("HTTP/1.1 200")) && bytes.Contains(p, []byte("event-stream")) {
		c.at("first write")
	}
	if bytes.Contains(p, []byte("[DONE]")) {
		c.at("last write")
	}
	return c.Conn.Write(p)
}

// plantedRun serves n requests with a delay at place and returns what `waybill
// ttft diff` takes: a file of dump lines, and two scrapes.
func plantedRun(t *testing.T, place string, n int) (dump, scrapes string) {
	t.Helper()
	p := &planted{place: place}
	lines := &lineCount{}
	backend, err := cpu.New(cpu.Options{Threads: 1, Math: cpu.F32})
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	src, err := model.Open(tinyModel)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := newTokenizer(src)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(src, backend, model.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := actors.New(actors.Config{
		ModelName: "tiny", MaxModelLen: 1024, MaxSeqs: 8, MaxBatchedTokens: 512, BlockSize: 16, NumBlocks: 256,
		KVType: kernels.F32, MaxQueuedReqs: 64, Intakes: 1, Detokenizers: 1, OnCPU: true,
		OnFatal: func(err error) { panic(err) },
		Dump:    lines, Fault: p.engine, Wrap: func(x actors.Executor) actors.Executor { return plantedExecutor{x, p} },
	}, m, tok)
	if err != nil {
		t.Fatal(err)
	}
	srv, err := httpapi.New(httpapi.Config{
		Engine: e, Names: []string{"tiny"}, OverloadStatus: 503, Chat: p, Defaults: actors.DefaultSampling(), Fault: p.at,
	})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(plantedListener{ln, p}) }()
	defer func() {
		if err := srv.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	dir, url := t.TempDir(), "http://"+ln.Addr().String()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	scrape := func(name string) string {
		return save(t, dir, name, fetch(t, client, url+"/metrics", ""))
	}
	ask := func(n int) {
		for i := range n {
			body := fmt.Sprintf(`{"messages":[{"role":"user","content":"%d plus one"}],"max_tokens":%d,"temperature":0,"ignore_eos":true,"stream":true}`, i, plantedTokens)
			if s := fetch(t, client, url+"/v1/chat/completions", body); !strings.HasSuffix(s, "data: [DONE]\n\n") {
				t.Fatalf("request %d: %s", i, s)
			}
		}
		// A waybill is booked a moment after the last byte.
		for end := time.Now().Add(10 * time.Second); lines.count() < n; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d dump lines of %d requests", lines.count(), n)
			}
		}
	}
	ask(5) // the first ones meet cold caches
	lines.reset()
	before := scrape("before")
	ask(n)
	return save(t, dir, "lines.log", lines.text()), before + "," + scrape("after")
}

// lineCount collects dump lines.
type lineCount struct {
	mu sync.Mutex
	b  bytes.Buffer
	n  int
}

func (l *lineCount) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	return l.b.Write(p)
}

func (l *lineCount) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

func (l *lineCount) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lineCount) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
	l.n = 0
}

// fetch gets url, or posts body to it.
func fetch(t *testing.T, c *http.Client, url, body string) string {
	t.Helper()
	var res *http.Response
	var err error
	if body == "" {
		res, err = c.Get(url)
	} else {
		res, err = c.Post(url, "application/json", strings.NewReader(body))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 {
		t.Fatalf("%s: status %d, %v: %s", url, res.StatusCode, err, b)
	}
	return string(b)
}

// save writes a file and returns its path.
func save(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// diff compares two sources as `waybill ttft diff` does.
func diff(t *testing.T, a, b string) (gaps []ttft.Gap, printed string) {
	t.Helper()
	var sides [2][]*ttft.Level
	for i, arg := range []string{a, b} {
		var err error
		if sides[i], err = ttft.Source(t.Context(), arg, ttft.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	pairs, err := ttft.Pair(sides[0], sides[1])
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	ttft.PrintDiff(&out, pairs)
	return pairs[0].Gaps, out.String()
}

// A delay in one place must be found by its name, from the dump lines and from
// the metrics, the part of intake included where the source knows it.
func TestAPlantedDelayIsFoundByName(t *testing.T) {
	const n = 60 // a stall of the machine of 100 ms moves a mean by less than 2 ms
	plainDump, plainScrapes := plantedRun(t, "", n)
	for _, c := range []struct{ place, phase, part string }{
		{"receive", "intake", "receive"},
		{"decode", "intake", "decode_json"},
		{"reserve", "intake", "reserve"},
		{"render", "intake", "render"},
		{"tokenize", "intake", "tokenize"},
		{"admit", "intake", "hop"},
		{"decide", "queued", ""},
		{"prefill", "prefill", ""},
		{"detokenizer", "egress", ""},
		{"first write", "egress", ""},
		{"third step", "decode", ""},
		{"last write", "tail", ""},
	} {
		t.Run(c.place, func(t *testing.T) {
			dump, scrapes := plantedRun(t, c.place, n)
			for _, from := range []struct{ name, a, b, part string }{
				{"dump lines", plainDump, dump, ""}, {"metrics", plainScrapes, scrapes, c.part},
			} {
				gaps, printed := diff(t, from.a, from.b)
				g := gaps[0]
				if c.phase == "decode" || c.phase == "tail" {
					g = gaps[1] // not in the time to first token
				}
				if g.Cause != c.phase || g.CausePart != from.part {
					t.Errorf("from %s: %s (%s) is named, want %s (%s):\n%s", from.name, g.Cause, g.CausePart, c.phase, from.part, printed)
				}
				// Sleeps are never shorter, and stalls hit both runs alike.
				if ms := float64(plantedDelay) / 1e6; g.CauseMs < 0.7*ms {
					t.Errorf("from %s: %.3f ms of %.3f are found:\n%s", from.name, g.CauseMs, ms, printed)
				}
				if want := g.Whole.Phase + ": B is "; !strings.Contains(printed, "→ "+want) || !strings.Contains(printed, "; "+c.phase+" explains +") {
					t.Errorf("from %s: the verdict does not say it:\n%s", from.name, printed)
				}
			}
		})
	}
}
