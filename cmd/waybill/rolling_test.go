package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// rollingConfig is a proxy in front of two servers that tries the other one when
// one is gone or refuses.
const rollingConfig = `
daemon off;
pid %[1]s/pid;
error_log stderr;
events {}
http {
	access_log off;
	client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi; uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	upstream servers { server %[3]s max_fails=0; server %[4]s max_fails=0; keepalive 8; }
	server {
		listen %[2]s;
		location / {
			proxy_pass http://servers;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_next_upstream error timeout http_503 non_idempotent;
		}
	}
}
`

// freePort returns an address that nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// Two servers behind a proxy are replaced one after the other under load: no
// request is lost.
func TestARollingRestartLosesNoRequest(t *testing.T) {
	bin, err := exec.LookPath("nginx")
	if err != nil {
		if bin, err = exec.LookPath("/usr/sbin/nginx"); err != nil && os.Getenv("CI") == "true" {
			t.Fatal("nginx is missing: .ci/run installs Debian's package nginx")
		} else if err != nil {
			t.Skip("nginx is not installed (Debian's package nginx)")
		}
	}
	ports := []string{freePort(t), freePort(t)}
	serve := func(i int) *process {
		t.Helper()
		_, port, _ := net.SplitHostPort(ports[i])
		return serveDefault(t, nil, "--port", port, "--log-format", "none", "--drain-grace", "500ms", "--threads", "1")
	}
	servers := []*process{serve(0), serve(1)}
	front := freePort(t)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, rollingConfig, dir, front, ports[0], ports[1]), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "-p", dir, "-c", file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	}()
	proxy := &process{t: t, url: "http://" + front}
	within(t, 10*time.Second, "nginx listens", func() bool {
		c, err := net.Dial("tcp", front)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var served atomic.Int64
	for i := range 4 {
		wg.Go(func() {
			for k := 0; ; k++ {
				select {
				case <-stop:
					return
				default:
				}
				stream := k%2 == 0
				a, err := proxy.talkTo("/v1/completions", completion(prompt(i*100+k, 10), 10, stream))
				switch {
				case err != nil:
					t.Errorf("client %d, request %d: %v", i, k, err)
				case a.status != 200, stream && !a.ended(), a.text() == "":
					t.Errorf("client %d, request %d: status %d: %.200s", i, k, a.status, a.body)
				default:
					served.Add(1)
				}
			}
		})
	}
	for i := range servers {
		time.Sleep(700 * time.Millisecond)
		if err := servers[i].cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if got := servers[i].exit(); got != 0 {
			t.Errorf("server %d ended with %d: %s", i, got, servers[i].log())
		}
		servers[i] = serve(i)
	}
	time.Sleep(500 * time.Millisecond)
	close(stop)
	wg.Wait()
	if served.Load() < 20 {
		t.Errorf("only %d requests were served", served.Load())
	}
	t.Logf("%d requests over a rolling restart of two servers: %s", served.Load(), strings.Join(ports, ", "))
}
