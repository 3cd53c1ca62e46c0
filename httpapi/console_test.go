package httpapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// console sends a request to the console under a host of its own.
func (s *testServer) console(method, path, body, host string, headers ...string) *reply {
	s.t.Helper()
	c := s.dial()
	defer c.Close()
	c.send(strings.Replace(request(method, path, body, headers...), "Host: test", "Host: "+host, 1))
	return c.must()
}

func consoleOn(u *setup) { u.http.Console.Enabled = true }

// Who may see the console: nobody where it is off; no other page; with a key who
// has it.
func TestConsoleIsForWhoMaySeeIt(t *testing.T) {
	off := startServer(t)
	for _, path := range []string{"/console", "/console/api/snapshot", "/console/assets/app.js"} {
		if r := off.console("GET", path, "", "localhost"); r.status != 404 || !strings.Contains(r.text(), "--console") {
			t.Errorf("off: %s: %d %s", path, r.status, r.text())
		}
	}
	s := startServer(t, consoleOn)
	for host, want := range map[string]int{
		"localhost": 200, "localhost:8000": 200, "127.0.0.1:1": 200, "127.9.9.9": 200, "[::1]:80": 200,
		"test": 403, "evil.example": 403, "localhost.evil.example": 403, "10.0.0.1": 403, "127.0.0.1.evil.example:80": 403,
	} {
		if r := s.console("GET", "/console/api/snapshot", "", host); r.status != want {
			t.Errorf("host %s: status %d, want %d: %.200s", host, r.status, want, r.text())
		}
	}
	for origin, want := range map[string]int{"http://localhost": 200, "http://evil.example": 403, "null": 403, "http://localhost:99": 403} {
		if r := s.console("GET", "/console/api/snapshot", "", "localhost", "Origin: "+origin); r.status != want {
			t.Errorf("origin %s: status %d, want %d", origin, r.status, want)
		}
	}
	for _, path := range []string{"/console", "/console/assets/app.js", "/console/api/snapshot", "/console/assets/none.js"} {
		h := s.console("GET", path, "", "localhost").header
		if !strings.HasPrefix(h["content-security-policy"], "default-src 'none'; script-src 'self';") || h["x-content-type-options"] != "nosniff" || h["cache-control"] != "no-store" {
			t.Errorf("%s: headers %v", path, h)
		}
	}
	for _, path := range []string{"/console/assets/..%2fconsole.go", "/console/assets/../../server.go", "/console/assets/%2e%2e/x", "/console/assets/"} {
		if r := s.console("GET", path, "", "localhost"); r.status == 200 {
			t.Errorf("%s: %.100s", path, r.text())
		}
	}
	keyed := startServer(t, consoleOn, func(u *setup) { u.http.APIKey = "secret" })
	if r := keyed.console("GET", "/console", "", "far.example"); r.status != 200 {
		t.Errorf("the page itself needs a key: %d", r.status)
	}
	for _, path := range []string{"/console/api/snapshot", "/console/api/events", "/console/api/requests/x", "/console/api/actors/ledger"} {
		if r := keyed.console("GET", path, "", "far.example"); r.status != 401 {
			t.Errorf("%s without the key: %d", path, r.status)
		}
	}
	if r := keyed.console("GET", "/console/api/snapshot", "", "far.example", "Authorization: Bearer secret"); r.status != 200 {
		t.Errorf("with the key: %d %s", r.status, r.text())
	}
}

// nulls returns the paths of nulls in a JSON value: a viewer gets empty lists.
func nulls(at string, v any) (out []string) {
	switch v := v.(type) {
	case nil:
		return []string{at}
	case map[string]any:
		for k, x := range v {
			out = append(out, nulls(at+"."+k, x)...)
		}
	case []any:
		for i, x := range v {
			out = append(out, nulls(fmt.Sprintf("%s[%d]", at, i), x)...)
		}
	}
	return out
}

func TestConsoleAnswersHaveNoNulls(t *testing.T) {
	s := startServer(t, consoleOn)
	s.post("/v1/completions", `{"prompt":"a","max_tokens":2,"stream":true}`, "X-Request-Id: seen").events()
	s.quiet()
	eventually(t, "the request is kept", func() bool { return s.console("GET", "/console/api/requests/seen", "", "localhost").status == 200 })
	for _, path := range []string{"snapshot", "requests/seen", "actors/scheduler-1", "actors/gpu-step-1", "actors/intake-0", "actors/inspector"} {
		r := s.console("GET", "/console/api/"+path, "", "localhost")
		var v any
		if err := json.Unmarshal(r.body, &v); err != nil || r.status != 200 {
			t.Fatalf("%s: %d, %v: %s", path, r.status, err, r.text())
		}
		if n := nulls(path, v); len(n) > 0 {
			t.Errorf("nulls: %v", n)
		}
	}
	for _, path := range []string{"requests/none", "actors/none", "actors/writer:none", "requests/"} {
		if r := s.console("GET", "/console/api/"+path, "", "localhost"); r.status != 404 {
			t.Errorf("%s: %d %s", path, r.status, r.text())
		}
	}
}

// Prompts and outputs are shown only where the server was told to.
func TestConsoleHidesContent(t *testing.T) {
	for _, show := range []bool{false, true} {
		s := startServer(t, consoleOn, func(u *setup) { u.engine.ShowContent = show })
		text := s.post("/v1/completions", `{"prompt":"a secret prompt","max_tokens":6,"ignore_eos":true,"stream":false}`, "X-Request-Id: shy").text()
		var a struct {
			Choices []struct {
				Text string `json:"text"`
			} `json:"choices"`
		}
		if err := json.Unmarshal([]byte(text), &a); err != nil || len(a.Choices) != 1 || a.Choices[0].Text == "" {
			t.Fatalf("%v: %s", err, text)
		}
		var w struct {
			Shown  bool   `json:"content_shown"`
			Prompt string `json:"prompt_text"`
			Output string `json:"output_text"`
		}
		eventually(t, "the request is kept", func() bool {
			r := s.console("GET", "/console/api/requests/shy", "", "localhost")
			return r.status == 200 && json.Unmarshal(r.body, &w) == nil && strings.Contains(r.text(), "TTFTSPLIT")
		})
		if w.Shown != show || show && (w.Prompt != "a secret prompt" || w.Output != a.Choices[0].Text) || !show && w.Prompt+w.Output != "" {
			t.Errorf("show %v: %+v, the answer was %q", show, w, a.Choices[0].Text)
		}
	}
}

// A viewer that knows no chunks gets none, and leaves nothing behind.
func TestConsoleEventsForHTTP10(t *testing.T) {
	s := startServer(t, consoleOn)
	c := s.dial()
	c.send(strings.Replace(strings.Replace(request("GET", "/console/api/events", ""), "Host: test", "Host: localhost", 1), "HTTP/1.1", "HTTP/1.0", 1))
	time.AfterFunc(300*time.Millisecond, s.Closing)
	r := c.must()
	c.Close()
	if r.proto != "HTTP/1.0" || r.chunked || r.header["connection"] != "close" || r.header["content-type"] != "text/event-stream" || r.header["x-content-type-options"] != "nosniff" {
		t.Errorf("%s %v", r.proto, r.header)
	}
	if text := r.text(); !strings.HasPrefix(text, "data: {") || !strings.HasSuffix(text, "}\n\n") {
		t.Errorf("body %.100q", text)
	}
	eventually(t, "all connections are closed", func() bool { return s.http.GetOpenConnectionsCount() == 0 })
}

// Actions are off, ask for their header, and do what they say.
func TestConsoleActions(t *testing.T) {
	const meant = consoleActionHeader + ": 1"
	off := startServer(t, consoleOn)
	for _, path := range []string{"/console/api/cancel", "/console/api/drain"} {
		if r := off.console("POST", path, `{"rid":"x"}`, "localhost", meant); r.status != 403 || !strings.Contains(r.text(), "--console-actions") {
			t.Errorf("%s while actions are off: %d %s", path, r.status, r.text())
		}
	}
	var drained atomic.Int64
	var mu sync.Mutex
	var logged []string
	s := startServer(t, consoleOn, func(u *setup) {
		u.engine.ConsoleActions = true
		u.http.Console.Drain = func() { drained.Add(1) }
		u.http.Console.Log = func(action, target, peer string) {
			mu.Lock()
			defer mu.Unlock()
			logged = append(logged, action+" "+target)
		}
		u.engine.Fault = func(point string) {
			if point == "step" {
				time.Sleep(2 * time.Millisecond)
			}
		}
	})
	for _, path := range []string{"/console/api/cancel", "/console/api/drain"} {
		if r := s.console("POST", path, `{"rid":"x"}`, "localhost"); r.status != 403 || drained.Load() != 0 {
			t.Errorf("%s without the header: %d %s", path, r.status, r.text())
		}
	}
	c := s.dial()
	c.send(request("POST", "/v1/completions", `{"prompt":"a","max_tokens":900,"ignore_eos":true,"stream":true}`, "X-Request-Id: long"))
	if _, err := c.head(); err != nil {
		t.Fatal(err)
	}
	if r := s.console("GET", "/console/api/actors/writer:long", "", "localhost"); r.status != 200 || !strings.Contains(r.text(), "client lag") {
		t.Errorf("the writer: %d %s", r.status, r.text())
	}
	if r := s.console("POST", "/console/api/cancel", `{"rid":"long"}`, "localhost", meant); r.status != 200 || !strings.Contains(r.text(), `"cancelled":1`) {
		t.Errorf("cancel: %d %s", r.status, r.text())
	}
	last := ""
	for {
		k, err := c.chunk()
		if err != nil {
			t.Fatal(err)
		}
		if k == "" {
			break
		}
		last += k
	}
	if !strings.Contains(last, "cancelled by the server's operator") || strings.Count(last, "data: [DONE]") != 1 {
		t.Errorf("a cancelled stream ends with %.300s", last[max(0, len(last)-300):])
	}
	if r := s.console("POST", "/console/api/cancel", `{"rid":"\u001b[2Jnone"}`, "localhost", meant); r.status != 404 {
		t.Errorf("cancel of nothing: %d %s", r.status, r.text())
	}
	if r := s.console("POST", "/console/api/drain", `{}`, "localhost", meant); r.status != 200 || drained.Load() != 1 {
		t.Errorf("drain: %d %s, called %d times", r.status, r.text(), drained.Load())
	}
	s.quiet()
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(logged, ", "); got != `cancel "long", cancel "\x1b[2Jnone", drain ""` {
		t.Errorf("logged: %s", got)
	}
}
