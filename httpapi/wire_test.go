package httpapi

import (
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// countingListener counts the write calls of the connections it accepts, with
// what they wrote.
type countingListener struct {
	net.Listener
	mu     sync.Mutex
	writes []string
}

type countingConn struct {
	net.Conn
	l *countingListener
}

func (l *countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &countingConn{c, l}, nil
}

func (c *countingConn) Write(p []byte) (int, error) {
	c.l.mu.Lock()
	c.l.writes = append(c.l.writes, string(p))
	c.l.mu.Unlock()
	return c.Conn.Write(p)
}

func (l *countingListener) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.writes
	l.writes = nil
	return w
}

// The stamps of a write are right only if all it holds is with the kernel when
// it returns: the head rides with the first event, every chunk is one write, and
// nothing is left behind but the end of the body.
func TestEveryChunkIsOneWrite(t *testing.T) {
	var l *countingListener
	s := startServer(t, func(u *setup) {
		u.listen = func(ln net.Listener) net.Listener {
			l = &countingListener{Listener: ln}
			return l
		}
	})
	for _, n := range []int{1, 6} {
		c := s.dial()
		l.take()
		c.send(request("POST", "/v1/completions", fmt.Sprintf(`{"prompt":[1,2,3],"max_tokens":8,"ignore_eos":true,"stream":true,"n":%d}`, n)))
		r := c.must()
		writes := l.take()
		if len(writes) != len(r.chunks)+1 || writes[len(writes)-1] != "0\r\n\r\n" {
			t.Fatalf("n=%d: %d chunks in %d writes, the last %q", n, len(r.chunks), len(writes), writes[len(writes)-1])
		}
		for i, k := range r.chunks {
			want := fmt.Sprintf("%x\r\n%s\r\n", len(k.data), k.data)
			if i == 0 {
				head, body, _ := strings.Cut(writes[0], "\r\n\r\n")
				if !strings.HasPrefix(head, "HTTP/1.1 200 OK\r\n") || body != want {
					t.Errorf("n=%d: the first write is %q", n, writes[0])
				}
			} else if writes[i] != want {
				t.Errorf("n=%d: write %d is %q, chunk %q", n, i, writes[i], want)
			}
		}
	}
	c := s.dial()
	l.take()
	c.send(request("POST", "/v1/completions", `{"prompt":[1,2,3],"max_tokens":20}`))
	c.must().answer()
	if w := l.take(); len(w) != 1 {
		t.Errorf("a collected answer took %d writes", len(w))
	}
}

// dumpLine finds the line of a request in the dump.
func (s *testServer) dumpLine(rid string) map[string]string {
	s.t.Helper()
	var found map[string]string
	eventually(s.t, "the dump has a line for "+rid, func() bool {
		for _, l := range strings.Split(s.dump.String(), "\n") {
			if f := strings.Fields(l); len(f) > 1 && f[1] == "rid="+rid {
				found = map[string]string{}
				for _, kv := range f[1:] {
					k, v, _ := strings.Cut(kv, "=")
					found[k] = v
				}
				return true
			}
		}
		return false
	})
	return found
}

// millis returns a time of a dump line.
func millis(t testing.TB, line map[string]string, name string) float64 {
	t.Helper()
	var v float64
	if _, err := fmt.Sscan(line[name], &v); err != nil {
		t.Fatalf("%s in %v: %v", name, line, err)
	}
	return v
}

func withDump(u *setup) { u.dump = true }

// short is three greedy tokens, each of which is a text of its own.
const short = `{"prompt":[1,2,3],"max_tokens":3,"ignore_eos":true,"temperature":0}`

// The clock of a request starts with its own first byte, on new and on
// kept-alive connections.
func TestIdleConnectionsAreNotCharged(t *testing.T) {
	s := startServer(t, withDump)
	const idle = 300 * time.Millisecond
	c := s.dial()
	for i := range 3 {
		time.Sleep(idle)
		rid := fmt.Sprintf("idle-%d", i)
		c.send(request("POST", "/v1/completions", short, "X-Request-Id: "+rid))
		if r := c.must(); r.header["x-request-id"] != rid {
			t.Errorf("X-Request-Id %q, want %q", r.header["x-request-id"], rid)
		}
		if ms := millis(t, s.dumpLine(rid), "intake"); ms >= 300 {
			t.Errorf("request %d: intake %v ms includes the client's idle time", i, ms)
		}
	}
	// Its first byte counts, not its last: a slow upload is the request's time.
	req := request("POST", "/v1/completions", short, "X-Request-Id: slow")
	c.send(req[:10])
	time.Sleep(idle)
	c.send(req[10:])
	c.must()
	if ms := millis(t, s.dumpLine("slow"), "intake"); ms < 290 {
		t.Errorf("slow upload: intake %v ms, want at least 290", ms)
	}
}

func TestRequestIDsAreSafeToPrint(t *testing.T) {
	s := startServer(t, withDump)
	for _, bad := range []string{"a b", "x=1", strings.Repeat("a", 129), "é", "a\tb"} {
		r := s.post("/v1/completions", short, "X-Request-Id: "+bad)
		if id := r.header["x-request-id"]; !regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`).MatchString(id) || id == bad {
			t.Errorf("X-Request-Id %q gives %q", bad, id)
		}
	}
	r := s.post("/v1/completions", strings.Replace(short, "{", `{"request_id":"from-body",`, 1))
	if r.header["x-request-id"] != "from-body" || r.answer().ID != "cmpl-from-body" {
		t.Errorf("request_id: header %q, id %q", r.header["x-request-id"], r.answer().ID)
	}
	s.dumpLine("from-body")
}

// Several requests in one write: all are answered, in order.
func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	s := startServer(t, withDump)
	for _, stream := range []string{"false", "true"} {
		c := s.dial()
		body := strings.Replace(short, "{", `{"stream":`+stream+`,`, 1)
		c.send(request("POST", "/v1/completions", body, "X-Request-Id: one-"+stream) +
			request("GET", "/version", "") +
			request("POST", "/v1/completions", strings.Replace(body, `"max_tokens":3`, `"max_tokens":60`, 1), "X-Request-Id: two-"+stream))
		if stream == "false" {
			c.must().answer()
		} else {
			c.must().events()
		}
		if r := c.must(); r.status != 200 || !strings.Contains(r.text(), "test") {
			t.Fatalf("the second answer is %d %s", r.status, r.body)
		}
		c.must()
		s.quiet()
		one, two := s.dumpLine("one-"+stream), s.dumpLine("two-"+stream)
		if one["out"] != "3" || two["out"] != "60" || one["reason"] != "length" || two["reason"] != "length" {
			t.Errorf("lines %v and %v", one, two)
		}
		// The second request arrived when the first was answered, so its own
		// time does not hold the first's.
		if _, ok := two["kernel"]; ok {
			t.Errorf("a pipelined request has a receive time: %v", two)
		}
	}
}

// What one pipelined request waits for is not the other's time.
func TestPipelinedRequestsHaveTheirOwnTimes(t *testing.T) {
	const stuck = 500 * time.Millisecond
	for held := range 2 {
		var n atomic.Int32
		s := startServer(t, withDump, func(u *setup) {
			u.engine.Fault = func(point string) {
				if point == "intake" && int(n.Add(1)) == held+1 {
					time.Sleep(stuck)
				}
			}
		})
		c := s.dial()
		c.send(request("POST", "/v1/completions", short, "X-Request-Id: one") + request("POST", "/v1/completions", short, "X-Request-Id: two"))
		begin := time.Now()
		c.must().answer()
		first := time.Since(begin)
		c.must().answer()
		s.quiet()
		lines := []map[string]string{s.dumpLine("one"), s.dumpLine("two")}
		if held == 1 && first >= stuck {
			t.Errorf("answer 1 came after %v: it waited for answer 2", first)
		}
		if ms := millis(t, lines[held], "intake"); ms < 500 {
			t.Errorf("the stuck request has %v ms of intake: %v", ms, lines[held])
		}
		if ms := millis(t, lines[1-held], "e2e"); ms >= 500 {
			t.Errorf("the other was charged %v ms: %v", ms, lines[1-held])
		}
	}
}

// An answer that fills every buffer between server and client is cut off at the
// deadline of one write; nobody else waits for it.
func TestPeerThatReadsNothingIsCutOff(t *testing.T) {
	s := startServer(t, withDump, func(u *setup) {
		u.http.WriteDeadline = 300 * time.Millisecond
		u.engine.MaxModelLen, u.engine.NumBlocks = 1024, 1024
		u.listen = func(l net.Listener) net.Listener { return smallBuffers{l} }
	})
	d := net.Dialer{}
	nc, err := d.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.(*net.TCPConn).SetReadBuffer(1024)
	// Logprobs make events large.
	body := `{"prompt":[1,2,3],"max_tokens":1000,"ignore_eos":true,"stream":true,"logprobs":20}`
	if _, err := io.WriteString(nc, request("POST", "/v1/completions", body, "X-Request-Id: dead")); err != nil {
		t.Fatal(err)
	}
	line := s.dumpLine("dead")
	if line["reason"] != "abort" {
		t.Errorf("line %v, want reason=abort", line)
	}
	s.post("/v1/completions", short).answer()
	// A collected answer that nobody takes costs its connection only.
	nc2, err := d.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc2.Close()
	_ = nc2.(*net.TCPConn).SetReadBuffer(1024)
	body = `{"prompt":[1,2,3],"max_tokens":1000,"ignore_eos":true,"logprobs":20}`
	if _, err := io.WriteString(nc2, request("POST", "/v1/completions", body, "X-Request-Id: dead2")); err != nil {
		t.Fatal(err)
	}
	line = s.dumpLine("dead2")
	if _, has := line["e2e"]; has || line["reason"] != "length" {
		t.Errorf("line %v: reason=length, and no e2e since its last byte never left", line)
	}
}

// smallBuffers gives connections small send buffers.
type smallBuffers struct{ net.Listener }

func (l smallBuffers) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		_ = c.(*net.TCPConn).SetWriteBuffer(4096)
	}
	return c, err
}

func TestLimitsOnHeadersAndBodies(t *testing.T) {
	s := startServer(t, func(u *setup) {
		u.http.ReadTimeout = 300 * time.Millisecond
		u.http.IdleTimeout = 300 * time.Millisecond
	})
	s.get("/version", "X-Long: "+strings.Repeat("x", 20<<10)).failure(431)
	c := s.dial()
	c.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n{")
	c.must().failure(413)
	c = s.dial()
	c.send("nonsense\r\n\r\n")
	if r := c.must(); r.status != 400 {
		t.Errorf("nonsense gets %d", r.status)
	}
	// A body, or a header, that does not come to an end.
	for _, part := range []string{"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", "POST /v1/comp"} {
		c = s.dial()
		begin := time.Now()
		c.send(part)
		c.must().failure(408)
		if d := time.Since(begin); d < 250*time.Millisecond {
			t.Errorf("408 after %v, before the limit", d)
		}
		if _, err := c.r.ReadByte(); err != io.EOF {
			t.Errorf("after 408: %v, want the end", err)
		}
	}
	// Silence, before the first request and after one, is closed without a word.
	c = s.dial()
	if b, err := io.ReadAll(c); err != nil && !strings.Contains(err.Error(), "reset") || len(b) > 0 {
		t.Errorf("a silent connection got %q, %v", b, err)
	}
	c = s.dial()
	c.send(request("GET", "/version", ""))
	c.must()
	if b, err := io.ReadAll(c); err != nil || len(b) > 0 {
		t.Errorf("an idle connection got %q, %v", b, err)
	}
	// Its first byte restarts the clock of a connection that idled.
	const limit = 1200 * time.Millisecond
	s = startServer(t, func(u *setup) { u.http.ReadTimeout, u.http.IdleTimeout = limit, limit })
	c = s.dial()
	time.Sleep(limit * 6 / 10)
	c.send("GET /version HTTP/1.1\r\n")
	time.Sleep(limit * 6 / 10)
	c.send("Host: x\r\n\r\n")
	if r := c.must(); r.status != 200 {
		t.Errorf("connect, wait, send slowly: %d", r.status)
	}
}

func TestHTTP10(t *testing.T) {
	s := startServer(t, withDump)
	ask := func(body, rid string) *reply {
		t.Helper()
		c := s.dial()
		c.send(strings.Replace(request("POST", "/v1/completions", body, "X-Request-Id: "+rid), "HTTP/1.1", "HTTP/1.0", 1))
		return c.must()
	}
	r := ask(strings.Replace(short, "{", `{"stream":true,`, 1), "old-stream")
	if r.proto != "HTTP/1.0" || r.chunked || r.header["connection"] != "close" || r.header["cache-control"] != "no-cache" || r.header["x-accel-buffering"] != "no" {
		t.Errorf("%s %v", r.proto, r.header)
	}
	if n := len(r.events()); n != 4 {
		t.Errorf("%d events, want 3 texts and a finish", n)
	}
	line := s.dumpLine("old-stream")
	if line["reason"] != "length" || line["ttft"] == "" || line["tail"] == "" || line["e2e"] == "" {
		t.Errorf("line %v", line)
	}
	if r := ask(short, "old"); r.chunked || r.answer().Usage.Completion != 3 {
		t.Errorf("%v %s", r.header, r.body)
	}
	ask(`{"stream":true}`, "old-bad").failure(400)
}

func TestBodiesThatComeInOtherWays(t *testing.T) {
	s := startServer(t)
	c := s.dial()
	c.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
	for _, part := range []string{short[:9], short[9:]} {
		c.send(fmt.Sprintf("%x\r\n%s\r\n", len(part), part))
	}
	c.send("0\r\n\r\n")
	c.must().answer()
	c.send(fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(short)))
	if r, err := c.head(); err != nil || r.status != 100 {
		t.Fatalf("%v, %v; want 100 Continue", r, err)
	}
	c.send(short)
	c.must().answer()
}
