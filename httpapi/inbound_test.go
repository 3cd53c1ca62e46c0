package httpapi

import (
	"fmt"
	"io"
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
