package httpapi

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// nginxConfig is a plain reverse proxy: all that concerns proxying is nginx's
// default but for the second location, which speaks HTTP/1.1 to the server.
const nginxConfig = `
daemon off;
pid %[1]s/pid;
error_log stderr;
events {}
http {
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	server {
		listen %[2]s;
		location / { proxy_pass http://%[3]s; }
		location /eleven/ {
			proxy_pass http://%[3]s/;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
		}
	}
}
`

// nginx starts one in front of addr and returns its address.
func nginx(t *testing.T, addr string) string {
	t.Helper()
	bin, err := exec.LookPath("nginx")
	if err != nil {
		if bin, err = exec.LookPath("/usr/sbin/nginx"); err != nil && os.Getenv("CI") == "true" {
			t.Fatal("nginx is missing: .ci/run installs Debian's package nginx")
		} else if err != nil {
			t.Skip("nginx is not installed (Debian's package nginx): what a proxy does to streams is not tried")
		}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	front := ln.Addr().String()
	ln.Close()
	dir, err := os.MkdirTemp("", "nginx")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, nginxConfig, dir, front, addr), 0o644); err != nil {
		t.Fatal(err)
	}
	log := &lockedBuffer{}
	cmd := exec.Command(bin, "-p", dir, "-c", file)
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // fast shutdown, workers and all
		_ = cmd.Wait()
		os.RemoveAll(dir)
	})
	eventually(t, "nginx listens: "+log.String(), func() bool {
		c, err := net.Dial("tcp", front)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return front
}

// sniffer notes the first bytes of each accepted connection.
type sniffer struct {
	net.Listener
	heads lockedBuffer
}

type sniffed struct {
	*net.TCPConn // with its descriptor: hang-ups are watched as ever
	heads        *lockedBuffer
	done         bool
}

func (s *sniffer) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &sniffed{TCPConn: c.(*net.TCPConn), heads: &s.heads}, nil
}

func (c *sniffed) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	if !c.done && n > 0 {
		c.done = true
		line, _, _ := strings.Cut(string(p[:n]), "\r\n")
		_, _ = c.heads.Write([]byte(line + "\n"))
	}
	return n, err
}

// at returns a connection to another address than the server's own.
func (s *testServer) at(addr string) *client {
	s.t.Helper()
	other := *s
	other.addr = addr
	return other.dial()
}

// gaps returns the times between the arrivals of a stream's events, sorted.
func gaps(chunks []chunk) []time.Duration {
	var out []time.Duration
	for i := 1; i < len(chunks); i++ {
		out = append(out, chunks[i].at.Sub(chunks[i-1].at))
	}
	sort.Slice(out, func(i, j int) bool { return out[i] < out[j] })
	return out
}

// proxied starts a server whose steps take some 10 ms, and nginx in front of it.
func proxied(t *testing.T, change ...func(*setup)) (s *testServer, front string, sniff *sniffer, p *pace) {
	sniff, p = &sniffer{}, &pace{}
	p.sleep.Store(int64(10 * time.Millisecond))
	s = startServer(t, append(change, func(u *setup) {
		u.engine.Fault = p.hook
		u.listen = func(l net.Listener) net.Listener { sniff.Listener = l; return sniff }
	})...)
	return s, nginx(t, s.addr), sniff, p
}

func TestStreamsPassNginxAsTheyAreMade(t *testing.T) {
	s, front, sniff, _ := proxied(t)
	const tokens = 120
	body := fmt.Sprintf(`{"prompt":[1,2,3],"max_tokens":%d,"temperature":0,"ignore_eos":true,"stream":true}`, tokens)
	// All at once: the same steps, and the same stalls of the machine, for all.
	paths := []struct{ name, addr, path string }{
		{"direct", s.addr, "/v1/completions"},
		{"nginx, its default protocol", front, "/v1/completions"},
		{"nginx, HTTP/1.1", front, "/eleven/v1/completions"},
	}
	replies := make([]*reply, len(paths))
	var wg sync.WaitGroup
	for i, w := range paths {
		c := s.at(w.addr)
		wg.Go(func() {
			c.send(request("POST", w.path, body))
			r, err := c.read()
			if err != nil {
				t.Errorf("%s: %v", w.name, err)
			}
			replies[i] = r
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	direct := gaps(replies[0].chunks)
	for i, r := range replies {
		r.events() // every event is whole, and [DONE] comes last
		if r.header["cache-control"] != "no-cache" || r.header["content-length"] != "" || r.header["content-encoding"] != "" || !r.chunked {
			t.Errorf("%s: headers %v", paths[i].name, r.header)
		}
		if r.text() == "" || i > 0 && join(r.events())[0].text != join(replies[0].events())[0].text {
			t.Errorf("%s: the text differs from the direct one", paths[i].name)
		}
		g := gaps(r.chunks)
		at := func(g []time.Duration, q float64) time.Duration { return g[int(q*float64(len(g)-1))] }
		t.Logf("%-28s %d arrivals, gap p10 %v p50 %v p90 %v p99 %v", paths[i].name, len(r.chunks), at(g, .1), at(g, .5), at(g, .9), at(g, .99))
		if len(r.chunks) < tokens*3/4 {
			t.Errorf("%s: %d tokens arrive in %d pieces: they were held back", paths[i].name, tokens, len(r.chunks))
		}
		for _, q := range []float64{.25, .5, .9} {
			if d := at(g, q) - at(direct, q); d > 5*time.Millisecond || d < -5*time.Millisecond {
				t.Errorf("%s: quantile %.2f of the gaps is %v, direct %v", paths[i].name, q, at(g, q), at(direct, q))
			}
		}
	}
	if h := replies[0].header["x-accel-buffering"]; h != "no" {
		t.Errorf("X-Accel-Buffering is %q, want no", h)
	}
	// One of 1.0 by default (nginx before 1.29.7), two of 1.1.
	t.Logf("requests: %q", sniff.heads.String())
}

func TestHangUpBehindNginxEndsTheRequest(t *testing.T) {
	s, front, _, _ := proxied(t)
	for _, path := range []string{"/v1/completions", "/eleven/v1/completions"} {
		before := s.metric("vllm:request_success_total", `finished_reason="abort"`)
		c := s.at(front)
		c.send(request("POST", path, `{"prompt":[1,2,3],"max_tokens":900,"ignore_eos":true,"stream":true}`))
		if _, err := c.head(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.chunk(); err != nil {
			t.Fatal(err)
		}
		c.Close()
		eventually(t, path+": the abort is booked", func() bool {
			return s.metric("vllm:request_success_total", `finished_reason="abort"`) == before+1
		})
	}
}

func TestNothingIsSentBeforeTheFirstTokenUnlessPingsAreOn(t *testing.T) {
	const hold = 600 * time.Millisecond
	for _, ping := range []time.Duration{0, 100 * time.Millisecond} {
		s, front, _, p := proxied(t, func(u *setup) { u.engine.KeepAlive = ping })
		for _, w := range []struct{ addr, path string }{
			{s.addr, "/v1/completions"}, {front, "/v1/completions"}, {front, "/eleven/v1/completions"},
		} {
			name := fmt.Sprintf("pings %v, %s%s", ping, w.addr, w.path)
			p.mu.Lock()
			var released atomic.Int64
			time.AfterFunc(hold, func() {
				released.Store(time.Now().UnixNano())
				p.mu.Unlock()
			})
			c := s.at(w.addr)
			c.send(request("POST", w.path, `{"prompt":[1,2,3],"max_tokens":40,"temperature":0,"ignore_eos":true,"stream":true}`))
			r, err := c.head()
			headAt := time.Now().UnixNano()
			if err != nil || r.status != 200 {
				t.Fatalf("%s: %+v, %v", name, r, err)
			}
			if early := released.Load() == 0 || headAt < released.Load(); early != (ping > 0) {
				t.Errorf("%s: the head came early: %t", name, early)
			}
			var comments, late int
			first, last := false, time.Now()
			body := ""
			for {
				k, err := c.chunk()
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if k == "" {
					break
				}
				body += k
				n := strings.Count(k, ": keep-alive\n\n")
				if !first {
					comments += n
				} else if late += n; n > 0 && time.Since(last) < ping/2 {
					// Only a step that the machine stalled may have one.
					t.Errorf("%s: a comment %v after a token", name, time.Since(last))
				}
				last = time.Now()
				first = first || strings.Contains(k, "data: ")
			}
			if _, n, err := splitEvents(body); err != nil || n != comments+late {
				t.Errorf("%s: %d comments, %v: %q", name, n, err, body)
			}
			switch {
			case ping == 0 && comments+late > 0:
				t.Errorf("%s: %d comments although pings are off", name, comments+late)
			case ping > 0 && (comments < 2 || comments > int(hold/ping)+1):
				t.Errorf("%s: %d comments in %v, one each %v", name, comments, hold, ping)
			}
		}
	}
}
