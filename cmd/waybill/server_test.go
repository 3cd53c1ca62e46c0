package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// defaultModel is what `make model` fetches.
const defaultModel = "../../.cache/models/SmolLM2-135M-Instruct.Q4_1.gguf"

// buildOnce builds the program, buildFaulty the one whose steps can be made to
// hang (faults_on.go).
var buildOnce, buildFaulty = builder(""), builder("faults")

func builder(tags string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		dir, err := os.MkdirTemp("", "waybill")
		if err != nil {
			return "", err
		}
		bin := filepath.Join(dir, "waybill")
		out, err := exec.Command("go", "build", "-tags", tags, "-o", bin, ".").CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("go build: %w\n%s", err, out)
		}
		return bin, nil
	})
}

// process is a `waybill serve` of its own.
type process struct {
	t      testing.TB
	cmd    *exec.Cmd
	url    string
	mu     sync.Mutex
	stderr bytes.Buffer
	exited chan struct{}
	err    error
}

// Write takes the process's stderr.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.Write(b)
}

// log returns what the process has printed on stderr.
func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

// start runs the program with args and env and does not wait for it.
func start(t testing.TB, env []string, args ...string) *process {
	t.Helper()
	return startBuilt(t, buildOnce, env, args...)
}

// startBuilt is start for the program that build makes.
func startBuilt(t testing.TB, build func() (string, error), env []string, args ...string) *process {
	t.Helper()
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, exited: make(chan struct{})}
	p.cmd = exec.Command(bin, args...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = p
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
	})
	return p
}

// exit waits for the process to end and returns its status.
func (p *process) exit() int {
	p.t.Helper()
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(60 * time.Second):
		p.t.Fatalf("the process did not end within 60 s:\n%s", p.log())
		return -1
	}
}

var readyLine = regexp.MustCompile(`(?m)^ready: .*(http://\S+)$`)

// serveDefault starts a server on the default model and waits until it is ready.
func serveDefault(t testing.TB, env []string, args ...string) *process {
	t.Helper()
	if _, err := os.Stat(defaultModel); err != nil {
		t.Fatalf("the default model is missing, run `make model`: %v", err)
	}
	p := start(t, env, append([]string{"serve", defaultModel, "--port", "0", "--served-model-name", "smollm2"}, args...)...)
	p.ready()
	return p
}

// ready waits until the process says that it is.
func (p *process) ready() {
	p.t.Helper()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if m := readyLine.FindStringSubmatch(p.log()); m != nil {
			p.url = m[1]
			return
		}
		select {
		case <-p.exited:
			p.t.Fatalf("the server ended before it was ready:\n%s", p.log())
		default:
		}
		if time.Now().After(end) {
			p.t.Fatalf("not ready within 60 s:\n%s", p.log())
		}
	}
}

// answered is a client's view of one request.
type answered struct {
	status int
	ttft   time.Duration // request sent → first event with text; 0 if not streamed
	e2e    time.Duration
	body   string
}

// post sends body to path. A streamed answer is read event by event.
func (p *process) post(ctx context.Context, path, rid, body string) (answered, error) {
	req, err := http.NewRequestWithContext(ctx, "POST", p.url+path, strings.NewReader(body))
	if err != nil {
		return answered{}, err
	}
	req.Header.Set("X-Request-Id", rid)
	began := time.Now()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return answered{}, err
	}
	defer res.Body.Close()
	a := answered{status: res.StatusCode}
	var all strings.Builder
	r := bufio.NewReader(res.Body)
	for {
		line, err := r.ReadString('\n')
		if a.ttft == 0 && strings.HasPrefix(line, "data: ") {
			a.ttft = time.Since(began)
		}
		all.WriteString(line)
		if err == io.EOF {
			break
		}
		if err != nil {
			return a, err
		}
	}
	a.e2e, a.body = time.Since(began), all.String()
	return a, nil
}
