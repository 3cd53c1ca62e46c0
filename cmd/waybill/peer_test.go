package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// peer is a raw HTTP/1.1 connection to a server process: it sees when bytes
// arrive, and can go away in any way.
type peer struct {
	net.Conn
	r *bufio.Reader
}

// heard is an event of a stream, and when it was complete.
type heard struct {
	at   time.Time
	data string
}

// talk is a whole answer.
type talk struct {
	status int
	header map[string]string
	head   time.Time
	events []heard
	body   string
}

// dial connects to the process.
func (p *process) dial() (*peer, error) {
	c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(3 * time.Minute))
	return &peer{c, bufio.NewReaderSize(c, 64<<10)}, nil
}

// wire formats a request.
func wire(method, path, body string, headers ...string) string {
	h := method + " " + path + " HTTP/1.1\r\nHost: test\r\n"
	if method == "POST" {
		h += "Content-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n"
	}
	for _, l := range headers {
		h += l + "\r\n"
	}
	return h + "\r\n" + body
}

// ask sends a POST on a new connection.
func (p *process) ask(path, body string, headers ...string) (*peer, error) {
	c, err := p.dial()
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(c, wire("POST", path, body, headers...)); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// head reads status line and headers.
func (c *peer) headOf() (*talk, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	t := &talk{header: map[string]string{}, head: time.Now()}
	if _, err := fmt.Sscanf(line, "HTTP/1.1 %d", &t.status); err != nil {
		return nil, fmt.Errorf("status line %q", line)
	}
	for {
		line, err := c.r.ReadString('\n')
		if err != nil {
			return nil, err
		}
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			return t, nil
		}
		k, v, _ := strings.Cut(line, ": ")
		t.header[strings.ToLower(k)] = v
	}
}

// chunk reads one chunk of a chunked body; "" at its end.
func (c *peer) chunk() (string, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return "", err
	}
	n, err := strconv.ParseInt(strings.TrimRight(line, "\r\n"), 16, 32)
	if err != nil {
		return "", err
	}
	b := make([]byte, n+2)
	if _, err := io.ReadFull(c.r, b); err != nil {
		return "", err
	}
	return string(b[:n]), nil
}

// answer reads a whole answer, event by event if it is a stream. each, if set, is
// called with the number of events so far and ends the reading by returning false.
func (c *peer) answer(each func(events int) bool) (*talk, error) {
	t, err := c.headOf()
	if err != nil {
		return nil, err
	}
	if n, ok := t.header["content-length"]; ok {
		l, err := strconv.Atoi(n)
		if err != nil {
			return t, err
		}
		b := make([]byte, l)
		_, err = io.ReadFull(c.r, b)
		t.body = string(b)
		return t, err
	}
	var body strings.Builder
	defer func() { t.body = body.String() }()
	rest := ""
	for {
		s, err := c.chunk()
		if err != nil || s == "" {
			return t, err
		}
		now := time.Now()
		body.WriteString(s)
		parts := strings.Split(rest+s, "\n\n")
		rest = parts[len(parts)-1]
		for _, e := range parts[:len(parts)-1] {
			if d, ok := strings.CutPrefix(e, "data: "); ok {
				t.events = append(t.events, heard{now, d})
			}
		}
		if each != nil && !each(len(t.events)) {
			return t, nil
		}
	}
}

// talkTo asks on a connection of its own and reads the whole answer.
func (p *process) talkTo(path, body string, headers ...string) (*talk, error) {
	c, err := p.ask(path, body, headers...)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.answer(nil)
}

// whole is what the tests read of answers and events.
type whole struct {
	Choices []struct {
		Index  int
		Text   string
		Delta  struct{ Content string }
		Finish *string `json:"finish_reason"`
	}
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
	}
	Error *struct {
		Message string
		Type    string
		Param   *string
		Code    any
	}
}

// parsed returns the JSON of an event or answer; a zero one if it is none.
func parsed(s string) (w whole) {
	_ = json.Unmarshal([]byte(s), &w)
	return w
}

// text joins the text of a stream, or returns a collected answer's.
func (t *talk) text() string {
	if len(t.events) == 0 {
		if w := parsed(t.body); len(w.Choices) > 0 {
			return w.Choices[0].Text
		}
		return ""
	}
	var b strings.Builder
	for _, e := range t.events {
		for _, c := range parsed(e.data).Choices {
			b.WriteString(c.Text + c.Delta.Content)
		}
	}
	return b.String()
}

// firstText returns when the first text came; zero if none did.
func (t *talk) firstText() time.Time {
	for _, e := range t.events {
		for _, c := range parsed(e.data).Choices {
			if c.Text+c.Delta.Content != "" {
				return e.at
			}
		}
	}
	return time.Time{}
}

// ended reports whether a stream came to its proper end.
func (t *talk) ended() bool {
	return len(t.events) > 0 && t.events[len(t.events)-1].data == "[DONE]" && strings.Count(t.body, "[DONE]") == 1
}

// atQuantile returns a quantile of sorted durations.
func atQuantile(d []time.Duration, q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	return d[int(q*float64(len(d)-1))]
}

// metric returns the sum of a series over the samples that hold label.
func (p *process) metric(name, label string) float64 {
	p.t.Helper()
	res, err := http.Get(p.url + "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	sum, found := 0.0, false
	for _, l := range strings.Split(string(b), "\n") {
		rest, ok := strings.CutPrefix(l, name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' || !strings.Contains(rest, label) {
			continue
		}
		v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			p.t.Fatalf("%q: %v", l, err)
		}
		sum, found = sum+v, true
	}
	if !found {
		p.t.Fatalf("no series %s{%s}", name, label)
	}
	return sum
}

// within waits until ok holds and returns how long it took; it fails the test
// after limit.
func within(t testing.TB, limit time.Duration, what string, ok func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !ok() {
		if d := time.Since(began); d > limit {
			t.Fatalf("%s: not after %v", what, d)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return time.Since(began)
}

// idle waits until the server has given everything back.
func (p *process) idle() {
	p.t.Helper()
	within(p.t, 30*time.Second, "everything is given back", func() bool {
		return p.metric("waybill:places_in_use", "") == 0 && p.metric("vllm:num_requests_running", "") == 0
	})
}

// footprint is what a process holds.
type footprint struct {
	rss                 int64 // bytes
	threads, fds, gorou int
}

func (f footprint) String() string {
	return fmt.Sprintf("%d MB, %d threads, %d descriptors, %d goroutines", f.rss>>20, f.threads, f.fds, f.gorou)
}

// footprint reads what the process holds now.
func (p *process) footprint() (f footprint) {
	p.t.Helper()
	pid := p.cmd.Process.Pid
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		p.t.Skipf("no /proc: %v", err)
	}
	for _, l := range strings.Split(string(b), "\n") {
		if v, ok := strings.CutPrefix(l, "VmRSS:"); ok {
			_, _ = fmt.Sscan(v, &f.rss)
			f.rss <<= 10
		}
		if v, ok := strings.CutPrefix(l, "Threads:"); ok {
			_, _ = fmt.Sscan(v, &f.threads)
		}
	}
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		p.t.Fatal(err)
	}
	f.fds, f.gorou = len(list), int(p.metric("waybill:goroutines", ""))
	return f
}

// cpuTime returns what the process has computed so far.
func (p *process) cpuTime() time.Duration {
	p.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		p.t.Skipf("no /proc: %v", err)
	}
	f := strings.Fields(string(b)[strings.LastIndexByte(string(b), ')')+1:])
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * time.Second / 100
}

// prompt returns token ids, n of them, that no other seed's begin with.
func prompt(seed, n int) string {
	var b strings.Builder
	b.WriteByte('[')
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(1000 + (seed*7919+i*104729)%40000))
	}
	b.WriteByte(']')
	return b.String()
}

// completion formats a greedy request that runs to its full length.
func completion(prompt string, maxTokens int, stream bool) string {
	return fmt.Sprintf(`{"prompt":%s,"max_tokens":%d,"temperature":0,"ignore_eos":true,"stream":%t}`, prompt, maxTokens, stream)
}

// counted is a streamed completion whose events say how many tokens there are.
func counted(prompt string, maxTokens int) string {
	return strings.TrimSuffix(completion(prompt, maxTokens, true), "}") + `,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`
}
