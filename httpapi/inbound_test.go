package httpapi

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// Many clients that send large bodies slowly cannot take all memory: those that
// send on while too much is under way are refused, small requests pass.
func TestBodiesUnderWayAreBounded(t *testing.T) {
	s := startServer(t)
	s.inbound.limit = 6 << 20
	head := fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: test\r\nContent-Length: %d\r\n\r\n", 20<<20)
	part := strings.Repeat("x", 1<<20)
	var held []*client
	for range 10 {
		c := s.dial()
		_, _ = io.WriteString(c, head+part+part[:1000]) // the server may have closed already
		held = append(held, c)
	}
	eventually(t, "some are refused", func() bool { return s.metric("waybill:requests_unreadable_total") >= 4 })
	if n := s.inbound.bytes.Load(); n > s.inbound.limit+1<<20 {
		t.Errorf("%d bytes are under way, limit %d", n, s.inbound.limit)
	}
	if a := s.post("/v1/completions", short); a.status != 200 {
		t.Errorf("a small request beside them: status %d: %s", a.status, a.body)
	}
	refused := 0
	for i, c := range held {
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		r, err := c.read()
		if err != nil {
			continue // it may still send
		}
		refused++
		if r.failure(503); r.header["retry-after"] == "" || !strings.Contains(r.text(), "limit is") {
			t.Errorf("client %d: %v %s", i, r.header, r.body)
		}
	}
	if refused < 4 || refused == len(held) {
		t.Errorf("%d of %d were refused", refused, len(held))
	}
	for _, c := range held {
		c.Close()
	}
	eventually(t, "nothing is counted at rest", func() bool { return s.inbound.bytes.Load() == 0 })
}

// What a request's body took is not kept while it is answered.
func TestBodiesAreLetGoOfBeforeTheAnswer(t *testing.T) {
	hold := make(chan struct{})
	s := startServer(t, func(u *setup) {
		u.engine.Fault = func(point string) {
			if point == "intake" {
				<-hold
			}
		}
	})
	c := s.dial()
	c.send(request("POST", "/v1/completions", `{"prompt":"a","max_tokens":2,"ignore_eos":true,"user":"`+strings.Repeat("x", 3<<20)+`"}`))
	eventually(t, "it is under way", func() bool { used, _ := s.e.Load(); return used == 1 })
	if n := s.inbound.bytes.Load(); n != 0 {
		t.Errorf("%d bytes are held although the request is decoded", n)
	}
	close(hold)
	c.must().answer()
	old := s.dial()
	old.send(strings.Replace(request("POST", "/v1/completions", `{"prompt":"a","max_tokens":2,"ignore_eos":true,"stream":true}`), "HTTP/1.1", "HTTP/1.0", 1))
	_ = old.SetReadDeadline(time.Now().Add(liveness))
	_, _ = io.ReadAll(old.r)
	eventually(t, "nothing is counted at rest", func() bool { return s.inbound.bytes.Load() == 0 })
}

// Large requests that were read and wait to be tokenized are under way as well: a
// queue of them is bounded by their bytes and not by its places alone.
func TestLargeRequestsThatWaitAreBounded(t *testing.T) {
	hold := make(chan struct{})
	s := startServer(t, func(u *setup) {
		u.engine.Fault = func(point string) {
			if point == "intake" {
				<-hold
			}
		}
	})
	s.inbound.limit = 12 << 20
	text := strings.Repeat("a b ", 1<<20) // 4 MB
	bodies := []struct{ path, body string }{
		{"/v1/completions", `{"prompt":"` + text + `","max_tokens":2}`},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"` + text + `"}],"max_tokens":2}`},
	}
	var all []*client
	for i := range 8 {
		c := s.dial()
		b := bodies[i%2]
		_, _ = io.WriteString(c, request("POST", b.path, b.body)) // the server may have closed already
		all = append(all, c)
		// One after the other, so that only what is kept counts.
		eventually(t, "it was read", func() bool {
			used, _ := s.e.Load()
			return used+int(s.metric("waybill:requests_unreadable_total")) == i+1
		})
	}
	if used, _ := s.e.Load(); used < 2 || used > 3 {
		t.Errorf("%d requests of 4 MB wait, the limit is 12 MB", used)
	}
	c := s.dial()
	c.send(request("POST", "/v1/completions", short))
	eventually(t, "a small one gets a place beside them", func() bool { used, _ := s.e.Load(); return used >= 3 })
	close(hold)
	c.must().answer()
	refused := 0
	for _, c := range all {
		r, err := c.read()
		if err != nil {
			continue // cut off while it sent
		}
		if r.status == 503 {
			refused++
			if r.failure(503); r.header["retry-after"] == "" {
				t.Errorf("a refusal without Retry-After: %s", r.body)
			}
		} else {
			r.failure(400) // longer than the context
		}
	}
	if refused == 0 {
		t.Error("nobody was told why")
	}
	eventually(t, "nothing is counted at rest", func() bool { return s.inbound.bytes.Load() == 0 })
	s.post(bodies[0].path, bodies[0].body).failure(400)
}

// Large answers that nobody reads cannot take all memory: they are counted with the
// requests, and each is let go of when its client has missed a deadline.
func TestAnswersThatNobodyReadsAreBounded(t *testing.T) {
	s := startServer(t, func(u *setup) { u.http.WriteDeadline = 2 * time.Second })
	// Eight bodies take 8 MB and an answer 5: the first answer finds no room, on a machine of any speed, and those
	// that come when some bodies are gone do.
	s.inbound.limit = 10 << 20
	ask := `{"prompt":"` + strings.Repeat("a b ", 240<<10) + `","return_token_strs":true}`
	var all []*client
	for range 8 { // a body is smaller than what is always read, its answer is not
		c := s.dial()
		_ = c.Conn.(*net.TCPConn).SetReadBuffer(64 << 10) // the kernel would take it all
		c.send(request("POST", "/tokenize", ask))
		all = append(all, c)
	}
	held := int64(0)
	eventually(t, "answers are held", func() bool { held = max(held, s.inbound.bytes.Load()); return held > s.inbound.limit/2 })
	if a := s.post("/v1/completions", short); a.status != 200 {
		t.Errorf("a small request beside them: status %d: %s", a.status, a.body)
	}
	eventually(t, "they are let go of although nobody has read them", func() bool {
		held = max(held, s.inbound.bytes.Load())
		return s.inbound.bytes.Load() == 0
	})
	if most := s.inbound.limit + 8<<20; held > most { // the small bodies are counted, and read anyway
		t.Errorf("%d bytes were held, limit %d", held, s.inbound.limit)
	}
	refused, cut := 0, 0
	for _, c := range all {
		r, err := c.read()
		switch {
		case err != nil:
			cut++
		case r.status == 503:
			refused++
			if r.failure(503); r.header["retry-after"] == "" || !strings.Contains(r.text(), "limit is") {
				t.Errorf("%v %.200s", r.header, r.body)
			}
		default:
			t.Errorf("status %d, %d bytes, although nobody read for the deadline", r.status, len(r.body))
		}
	}
	if refused == 0 || cut == 0 {
		t.Errorf("%d were refused, %d cut off", refused, cut)
	}
	if r := s.post("/tokenize", ask); r.status != 200 {
		t.Errorf("afterwards: status %d: %.200s", r.status, r.body)
	}
}
