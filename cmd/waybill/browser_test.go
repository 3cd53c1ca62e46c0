package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"waybill/actors"
	"waybill/httpapi"
	"waybill/kernels"
	"waybill/kernels/cpu"
	"waybill/model"
)

// browser runs the console's tests in chromium: `make browser`.
var browser = flag.Bool("browser", false, "run the console's tests, which need chromium")

// hostileName is a name that must be shown, never run.
const hostileName = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`

// consoleServer is a server on the default model whose actors fail on demand.
type consoleServer struct {
	t     *testing.T
	url   string
	lines *lineCount
	fail  atomic.Pointer[string] // panic at this point, once
	stall atomic.Pointer[string] // sleep 2 s at this point, once
}

func (s *consoleServer) hook(point string) {
	if p := s.fail.Load(); p != nil && *p == point && s.fail.CompareAndSwap(p, nil) {
		panic("planted: " + hostileName)
	}
	if p := s.stall.Load(); p != nil && *p == point && s.stall.CompareAndSwap(p, nil) {
		time.Sleep(2 * time.Second)
	}
}

func startConsole(t *testing.T) *consoleServer {
	t.Helper()
	s := &consoleServer{t: t, lines: &lineCount{}}
	src, err := model.Open(defaultModel)
	if err != nil {
		t.Fatalf("%v (the default model is fetched by `make model`)", err)
	}
	tok, err := newTokenizer(src)
	if err != nil {
		t.Fatal(err)
	}
	backend, err := cpu.New(cpu.Options{Threads: 1, Math: cpu.Int8})
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(src, backend, model.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := actors.New(actors.Config{
		ModelName: hostileName, MaxModelLen: 2048, MaxSeqs: 8, MaxBatchedTokens: 512, BlockSize: 16, NumBlocks: 512, PrefixCache: true,
		KVType: kernels.F16, MaxQueuedReqs: 64, Intakes: 1, Detokenizers: 2, OnCPU: true, ConsoleActions: true, ShowContent: true,
		OnFatal: func(err error) { panic(err) }, Dump: s.lines, Fault: s.hook,
	}, m, tok)
	if err != nil {
		t.Fatal(err)
	}
	srv, err := httpapi.New(httpapi.Config{
		Engine: e, Names: []string{"smollm2"}, OverloadStatus: 503, Defaults: actors.DefaultSampling(),
		Console: httpapi.Console{Enabled: true}, WriteDeadline: 20 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + ln.Addr().String()
	served := make(chan error, 1)
	go func() { served <- srv.Serve(tightListener{ln}) }()
	t.Cleanup(func() {
		srv.Closing()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if e.Wait(ctx) != nil {
			e.CutAll()
		}
		_ = srv.Shutdown(ctx)
		<-served
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		backend.Close()
		src.Close()
	})
	return s
}

// tightListener's connections hold few bytes that their client has not read.
type tightListener struct{ net.Listener }

func (l tightListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(4 << 10)
	}
	return c, err
}

// ask sends one streamed request and reads it to its end.
func (s *consoleServer) ask(rid, prompt string, tokens int) error {
	req, err := http.NewRequest("POST", s.url+"/v1/completions", strings.NewReader(fmt.Sprintf(
		`{"prompt":%q,"max_tokens":%d,"ignore_eos":true,"stream":true,"temperature":0}`, prompt, tokens)))
	if err != nil {
		return err
	}
	req.Header.Set("X-Request-Id", rid)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return err
}

// load keeps n streams going until the test ends.
func (s *consoleServer) load(n int) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{}, n)
	for i := range n {
		go func() {
			defer func() { done <- struct{}{} }()
			for k := 0; ctx.Err() == nil; k++ {
				if err := s.ask(fmt.Sprintf("load-%d-%d", i, k), strings.Repeat("word ", 20+50*((i+k)%4)), 48); err != nil {
					s.t.Error(err)
					return
				}
			}
		}()
	}
	s.t.Cleanup(func() {
		stop()
		for range n {
			<-done
		}
	})
}

// page is a tab of the browser. Errors of its console fail the test.
type page struct {
	t   *testing.T
	ctx context.Context
}

func openPage(t *testing.T, url string, width, height int64, dark bool) *page {
	t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(int(width), int(height)))
	alloc, cancel := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(alloc)
	t.Cleanup(cancel)
	messages := chromedp.Console(ctx)
	go func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.Exception != nil || m.Type == "error" || m.Type == "assert" {
				t.Errorf("the browser's console: %s %s", m.Text, m.URL)
			}
		}
	}()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	p := &page{t, ctx}
	p.do() // starts the browser
	if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	}); err != nil {
		t.Fatal(err)
	}
	p.do(chromedp.EmulateViewport(width, height), chromedp.Navigate(url))
	return p
}

func (p *page) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.t.Fatal(err)
	}
}

// eval returns the value of a script.
func (p *page) eval(script string) string {
	p.t.Helper()
	out, err := chromedp.Run(p.ctx, chromedp.Evaluate[string]("String("+script+")"))
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}

// script runs a script for what it does.
func script(s string) chromedp.Action[chromedp.Void] { return chromedp.Evaluate[chromedp.Void](s) }

// until waits for a script to be true.
func (p *page) until(what, script string) {
	p.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if p.eval(script) == "true" {
			return
		}
		if time.Now().After(end) {
			p.shot("failed")
			p.t.Fatalf("the page never showed %s: %s; it shows\n%s", what, script, p.eval("document.body.innerText"))
		}
	}
}

// shot saves a screenshot among the artefacts.
func (p *page) shot(name string) {
	p.t.Helper()
	png, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Fatal(err)
	}
	dir := "../../.artifacts/console"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func needBrowser(t *testing.T) {
	t.Helper()
	if !*browser {
		t.Skip("the console's tests need chromium: `make browser` runs them")
	}
}

// Every view shows live figures under load, and nothing that a client sends runs.
func TestConsoleViews(t *testing.T) {
	needBrowser(t)
	s := startConsole(t)
	s.load(5)
	p := openPage(t, s.url+"/console", 1280, 720, false)
	p.until("live data", `document.querySelector("#link").textContent === "live" && document.querySelectorAll(".stage").length === 5`)
	// Rates need a second sample, gauges a load.
	p.until("steps", `/\d/.test(document.querySelector('.stage[data-kind="gpu-step"] dd').textContent) && document.querySelector('.stage[data-kind="sse-writer"] h3').textContent.includes("5")`)
	p.until("rates", `parseFloat(document.querySelector('.edge b').textContent) >= 0 && [...document.querySelectorAll(".edge b")].filter((b) => parseFloat(b.textContent) > 0).length >= 8`)
	p.shot("pipeline-light")

	p.do(chromedp.KeyEvent("2"))
	p.until("the actors", `document.querySelectorAll('table[aria-label="actors"] tbody tr').length >= 7`)
	p.shot("actors-light")
	p.do(script(`[...document.querySelectorAll("th button")].find((b) => b.textContent === "actor").click()`))
	first := p.eval(`document.querySelector("tbody tr td").textContent`)
	p.do(script(`[...document.querySelectorAll("th button")].find((b) => b.textContent === "actor").click()`))
	if second := p.eval(`document.querySelector("tbody tr td").textContent`); second == first || first < second {
		t.Errorf("sorting by name shows %q first, then %q: the first must be last in the alphabet", first, second)
	}
	p.do(chromedp.KeyEvent("/"), chromedp.KeyEvent("detok"))
	p.until("two filtered rows", `document.querySelectorAll('table[aria-label="actors"] tbody tr').length === 2`)
	p.do(script(`document.querySelector('input[type="search"]').value = ""; document.querySelector('input[type="search"]').dispatchEvent(new Event("input"))`))
	p.do(script(`[...document.querySelectorAll("tbody tr")].find((r) => r.textContent.includes("scheduler")).click()`))
	p.until("the scheduler's own figures", `document.querySelector("aside dl")?.textContent.includes("running") && document.querySelector("aside dl").textContent.includes("last plan")`)
	p.shot("inspect-light")
	p.do(script(`document.querySelector("aside button").click()`))

	p.do(script(`location.hash = "requests"`))
	p.until("running requests", `document.querySelectorAll('table[aria-label="requests"] tbody tr[tabindex]').length === 5`)
	p.shot("requests-light")

	p.do(script(`location.hash = "steps"`))
	p.until("steps", `document.querySelectorAll("svg rect").length > 20 && document.querySelectorAll('table[aria-label="steps"] tbody tr').length > 20`)
	p.shot("steps-light")

	p.do(script(`location.hash = "memory"`))
	p.until("blocks", `document.querySelector(".legend")?.textContent.match(/used [1-9]/) !== null && document.body.textContent.includes("the engine computes on the CPU")`)
	p.shot("memory-light")

	p.do(script(`location.hash = "dropped"`))
	p.until("the cost of watching", `document.body.textContent.includes("share of one core")`)
	p.shot("dropped-light")
	if got := p.eval(`document.querySelector("#cost").textContent`); !strings.Contains(got, "1 of at most") {
		t.Errorf("one page is open, the console says %q", got)
	}
	if got := p.eval(`document.querySelector("#model").textContent`); got != hostileName {
		t.Errorf("the model's name is shown as %q", got)
	}
	if got := p.eval(`document.title + document.querySelectorAll("img, #model *").length`); got != "waybill console0" {
		t.Errorf("the model's name was taken for markup: %s", got)
	}
	for _, view := range []string{"pipeline", "actors", "requests", "steps", "memory", "dropped"} {
		p.do(script(fmt.Sprintf("location.hash = %q", view)))
		if over := p.eval("document.documentElement.scrollWidth - innerWidth"); over != "0" {
			t.Errorf("%s is %s pixels too wide for 1280", view, over)
		}
	}
}

var number = regexp.MustCompile(`(\w+)=([0-9.]+)`)

// A waterfall's parts are the dump line's, and it can be opened by its address.
func TestConsoleWaterfall(t *testing.T) {
	needBrowser(t)
	s := startConsole(t)
	if err := s.ask("one-of-many", "Say <b>something</b> about "+strings.Repeat("rivers ", 700), 12); err != nil {
		t.Fatal(err)
	}
	s.load(3)
	var line string
	for end := time.Now().Add(10 * time.Second); line == "" && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for _, l := range strings.Split(s.lines.text(), "\n") {
			if strings.HasPrefix(l, "TTFTSPLIT rid=one-of-many ") {
				line = l
			}
		}
	}
	p := openPage(t, s.url+"/console#requests/one-of-many", 1280, 900, true)
	p.until("the waterfall", `document.querySelectorAll("#waterfall rect").length > 5`)
	shown := map[string]string{}
	if err := json.Unmarshal([]byte(p.eval(`JSON.stringify(Object.fromEntries([...document.querySelectorAll("#parts tr")].map((r) => [r.dataset.part, r.lastChild.textContent])))`)), &shown); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range number.FindAllStringSubmatch(line, -1) {
		if v, ok := shown[f[1]]; ok {
			n++
			if v != f[2]+" ms" {
				t.Errorf("the dump line says %s=%s, the console %s", f[1], f[2], v)
			}
		}
	}
	if n < 7 || line == "" {
		t.Errorf("%d parts were compared with the line %q, the console shows %v", n, line, shown)
	}
	if got := p.eval(`document.querySelector("#dump").textContent`); got != line+"\n" {
		t.Errorf("the dump line is shown as %q, want %q", got, line)
	}
	if got := p.eval(`[...document.querySelectorAll("aside pre")].some((x) => x.textContent.includes("<b>something</b>")) && document.querySelectorAll("aside b").length`); got != "0" {
		t.Errorf("the prompt is not shown as text: %s", got)
	}
	p.shot("waterfall-dark")
	p.do(chromedp.KeyEvent("\x1b"))
	p.until("a closed drawer", `document.querySelector("aside").hidden`)
	phone := openPage(t, s.url+"/console", 390, 844, true)
	phone.until("live data", `document.querySelectorAll(".stage").length === 5`)
	phone.shot("pipeline-phone")
	for _, view := range []string{"pipeline", "actors", "requests", "steps", "memory", "dropped"} {
		phone.do(script(fmt.Sprintf("location.hash = %q", view)))
		if over := phone.eval("document.documentElement.scrollWidth - innerWidth"); over != "0" {
			t.Errorf("%s is %s pixels too wide for a phone", view, over)
		}
		phone.shot(view + "-phone")
	}
	phone.do(script(`location.hash = "requests/one-of-many"`))
	phone.until("the waterfall", `document.querySelectorAll("#waterfall rect").length > 5`)
	phone.shot("waterfall-phone")
}

// A killed actor, a stuck handler and a slow reader are seen by name.
func TestConsoleFaults(t *testing.T) {
	needBrowser(t)
	s := startConsole(t)
	// A reader that takes nothing: its bytes wait once the socket's buffers are full.
	slow, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	_ = slow.(*net.TCPConn).SetReadBuffer(1 << 10)
	body := fmt.Sprintf(`{"prompt":%q,"max_tokens":1500,"ignore_eos":true,"stream":true,"temperature":0,"n":6,"logprobs":5}`, "Once")
	fmt.Fprintf(slow, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Request-Id: slow-reader\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	p := openPage(t, s.url+"/console#requests", 1280, 720, true)
	p.until("a lagging writer", `[...document.querySelectorAll("tbody tr")].some((r) => r.textContent.includes("slow-reader") && r.querySelector(".bad"))`)
	p.shot("slow-reader-dark")
	slow.Close()
	s.load(3)
	stall := "detokenizer"
	s.stall.Store(&stall)
	p.do(script(`location.hash = "actors"`))
	p.until("a stuck handler", `/detokenizer-\d/.test(document.querySelector('ol[aria-label="Stuck handlers"]').textContent)`)
	// The Scheduler may be listed, too: it waits for the Detokenizer.
	if got := p.eval(`[...document.querySelectorAll('ol[aria-label="Stuck handlers"] li')].filter((x) => /detokenizer-\d/.test(x.textContent)).map((x) => x.querySelector("pre").textContent).join("\n")`); !strings.Contains(got, "consoleServer).hook") {
		t.Errorf("the stack does not show the planted sleep:\n%s", got)
	}
	fail := "detokenizer"
	s.fail.Store(&fail)
	p.until("the failure with its reason", `document.querySelector('ol[aria-label="Restarts"]').textContent.includes("planted: ") && /that got an error: [1-9]/.test(document.querySelector('ol[aria-label="Restarts"]').textContent)`)
	if got := p.eval("document.title"); got != "waybill console" {
		t.Errorf("the reason of a failure ran as script: the title is %q", got)
	}
	p.do(script(`document.querySelector('ol[aria-label="Restarts"] summary').click()`))
	p.shot("faults-dark")
	p.until("a restart in the tree", `document.querySelector(".tree").textContent.includes("restarted 1×")`)
}
