//go:build linux

package httpapi

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// hangUps are the ways in which a client goes away.
var hangUps = []struct {
	name string
	do   func(c *client)
}{
	{"close", func(c *client) { c.Close() }},
	{"reset", func(c *client) {
		_ = c.Conn.(*net.TCPConn).SetLinger(0)
		c.Close()
	}},
	{"half-close", func(c *client) { _ = c.Conn.(*net.TCPConn).CloseWrite() }},
	{"close behind pipelined bytes", func(c *client) {
		c.send(request("GET", "/version", ""))
		c.Close()
	}},
}

// A hang-up is noticed without a write, in every phase, and ends the request's
// work. The engine is stuck in a step all the while, so nothing else can have
// told the server.
func TestHangUpIsNoticedInEveryPhase(t *testing.T) {
	for _, phase := range []string{"intake", "queue", "prefill", "decode"} {
		var holding atomic.Bool
		var mu sync.Mutex
		release := make(chan struct{})
		steps := 0
		s := startServer(t, withDump, func(u *setup) {
			u.engine.MaxSeqs, u.engine.Intakes = 1, 1
			u.engine.Fault = func(point string) {
				wait := false
				mu.Lock()
				r := release
				switch {
				case !holding.Load():
				case point == "intake":
					wait = phase == "intake"
				case point == "step":
					steps++
					wait = phase == "queue" || phase == "prefill" || phase == "decode" && steps > 4
				}
				mu.Unlock()
				if wait {
					<-r
				}
			}
		})
		for _, stream := range []bool{false, true} {
			for _, h := range hangUps {
				mu.Lock()
				release, steps = make(chan struct{}), 0
				mu.Unlock()
				holding.Store(true)
				name := fmt.Sprintf("%s-%v-%s", phase, stream, strings.ReplaceAll(h.name, " ", "_"))
				ask := func(rid string) *client {
					c := s.dial()
					c.send(request("POST", "/v1/completions", fmt.Sprintf(`{"prompt":[1,2,3],"max_tokens":40,"ignore_eos":true,"stream":%v}`, stream), "X-Request-Id: "+rid))
					return c
				}
				var other *client
				open := int32(1)
				if phase == "queue" {
					other = ask("other-" + name)
					eventually(t, "the other runs", func() bool { mu.Lock(); defer mu.Unlock(); return steps > 0 })
					open = 2
				}
				c := ask(name)
				eventually(t, name+": the request is under way", func() bool {
					used, _ := s.e.Load()
					return used == int(open) && s.http.GetOpenConnectionsCount() == open
				})
				if phase == "decode" {
					eventually(t, name+": decoding", func() bool { mu.Lock(); defer mu.Unlock(); return steps > 4 })
				}
				begin := time.Now()
				h.do(c)
				eventually(t, name+": the connection is closed by the server", func() bool { return s.http.GetOpenConnectionsCount() < open })
				if d := time.Since(begin); d > liveness/4 {
					t.Errorf("%s: noticed after %v", name, d)
				}
				if h.name == "half-close" {
					if _, err := io.ReadAll(c.r); err != nil && !strings.Contains(err.Error(), "reset") {
						t.Errorf("%s: the answer ends with %v", name, err)
					}
				}
				holding.Store(false)
				mu.Lock()
				close(release)
				mu.Unlock()
				if other != nil {
					other.must()
					other.Close()
				}
				s.quiet()
				line := s.dumpLine(name)
				if line["reason"] != "abort" || line["e2e"] == "" || line["out"] == "40" {
					t.Errorf("%s: line %v", name, line)
				}
			}
		}
	}
}

// The stream of an HTTP/1.0 client leaves the server's loop; it is watched all
// the same.
func TestHangUpOfAnHTTP10Stream(t *testing.T) {
	s := startServer(t, withDump)
	for i, h := range hangUps[:3] {
		rid := fmt.Sprintf("old-%d", i)
		c := s.dial()
		req := request("POST", "/v1/completions", `{"prompt":[1,2,3],"max_tokens":1000,"ignore_eos":true,"stream":true}`, "X-Request-Id: "+rid)
		c.send(strings.Replace(req, "HTTP/1.1", "HTTP/1.0", 1))
		if _, err := c.head(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond) // or the end comes before the stamp of the first write
		h.do(c)
		s.quiet()
		if line := s.dumpLine(rid); line["reason"] != "abort" || line["e2e"] == "" {
			t.Errorf("%s: line %v", h.name, line)
		}
	}
	eventually(t, "all connections are closed", func() bool { return s.http.GetOpenConnectionsCount() == 0 })
}

// A connection whose peer hung up before its request was read is not served for
// long either: the request finds the mark.
func TestHangUpBeforeTheRequestIsRead(t *testing.T) {
	s := startServer(t, withDump)
	for i := range 20 {
		c := s.dial()
		rid := fmt.Sprintf("early-%d", i)
		c.send(request("POST", "/v1/completions", `{"prompt":[1,2,3],"max_tokens":1000,"ignore_eos":true}`, "X-Request-Id: "+rid))
		c.Close()
	}
	s.quiet()
	eventually(t, "all connections are closed", func() bool { return s.http.GetOpenConnectionsCount() == 0 })
}

// Many clients that go away at random moments leave nothing behind, and those
// beside them get their golden tokens.
func TestHangUpsLeaveNothingBehind(t *testing.T) {
	s := startServer(t)
	g := goldens(t)[0]
	want := s.both("/v1/completions", greedyBody(g, len(g.Tokens))).Choices[0].content()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for k := range 25 {
				c := s.dial()
				c.send(request("POST", "/v1/completions", fmt.Sprintf(`{"prompt":[1,2,3],"max_tokens":500,"ignore_eos":true,"stream":%v}`, k%2 == 0)))
				time.Sleep(time.Duration((i*25+k)*37%2500) * time.Microsecond)
				hangUps[k%4].do(c)
				if k%4 == 2 {
					c.Close()
				}
			}
		})
	}
	for range 10 {
		if got := s.both("/v1/completions", greedyBody(g, len(g.Tokens))).Choices[0].content(); got != want {
			t.Errorf("beside clients that hang up: %q, want %q", got, want)
		}
	}
	wg.Wait()
	s.quiet()
	eventually(t, "all connections are closed", func() bool { return s.http.GetOpenConnectionsCount() == 0 })
	s.watcher.mu.Lock()
	left := len(s.watcher.conns)
	s.watcher.mu.Unlock()
	if left != 0 {
		t.Errorf("the watcher still knows %d connections", left)
	}
}

// A host that lost power sends nothing: the kernel must give up by itself.
func TestSilentHostsAreGivenUp(t *testing.T) {
	w, err := newWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	server, _ := pair(t)
	c := &conn{Conn: server, watcher: w, id: 1}
	w.add(c, server)
	defer w.remove(c)
	raw, err := server.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var ms, alive int
	_ = raw.Control(func(fd uintptr) {
		ms, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
		alive, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE)
	})
	if ms != userTimeout || alive == 0 {
		t.Errorf("TCP_USER_TIMEOUT %d, keep-alive %d; want %d and on", ms, alive, userTimeout)
	}
}
