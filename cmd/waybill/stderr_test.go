package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// pipedServer is a server on the tiny model whose stderr is a pipe that the test
// reads as far as it likes.
type pipedServer struct {
	*process
	reader *os.File
}

// servePiped starts a server and reads its stderr up to the ready line.
func servePiped(t *testing.T, grace string) *pipedServer {
	t.Helper()
	bin, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := &pipedServer{process: &process{t: t, exited: make(chan struct{})}, reader: r}
	s.cmd = exec.Command(bin, "serve", tinyModel, "--port", "0", "--served-model-name", "tiny", "--drain-grace", grace)
	s.cmd.Env = append(os.Environ(), "VT_TTFT_DUMP=1")
	s.cmd.Stderr = w
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	go func() {
		s.err = s.cmd.Wait()
		close(s.exited)
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.exited
		r.Close()
	})
	line, err := bufio.NewReader(r).ReadString('\n')
	m := readyLine.FindStringSubmatch(line)
	if err != nil || m == nil {
		t.Fatalf("no ready line: %q, %v", line, err)
	}
	s.url = m[1]
	return s
}

// complete asks for n answers, one after another.
func (s *pipedServer) complete(n int) {
	s.t.Helper()
	for i := range n {
		a, err := s.post(context.Background(), "/v1/completions", fmt.Sprintf("r%d", i), `{"prompt":"a","max_tokens":1}`)
		if err != nil || a.status != http.StatusOK {
			s.t.Fatalf("request %d of %d: status %d, %v", i, n, a.status, err)
		}
	}
}

// endsWithin fails unless the process ends in time.
func (s *pipedServer) endsWithin(d time.Duration, status int) {
	s.t.Helper()
	select {
	case <-s.exited:
		if got := s.cmd.ProcessState.ExitCode(); got != status {
			s.t.Errorf("exit status %d, want %d", got, status)
		}
	case <-time.After(d):
		s.t.Fatalf("the process did not end within %v", d)
	}
}

func TestServerOutlivesTheReaderOfItsStderr(t *testing.T) {
	s := servePiped(t, "0s")
	s.reader.Close()
	s.complete(3)
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	s.endsWithin(20*time.Second, 0)
}

// blockStderr makes so many lines that the pipe, which nobody reads, is full.
func (s *pipedServer) blockStderr() {
	s.t.Helper()
	const pipeBytes = 64 << 10 // Linux's default
	const lineBytes = 200      // a dump line and a log line have more
	s.complete(pipeBytes/lineBytes + 50)
}

func TestSignalEndsAServerWhoseStderrIsBlocked(t *testing.T) {
	s := servePiped(t, "0s")
	s.blockStderr()
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	s.endsWithin(20*time.Second, 0)
}

func TestSecondSignalEndsAServerWhoseStderrIsBlocked(t *testing.T) {
	s := servePiped(t, "60s")
	s.blockStderr()
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	time.Sleep(3 * sameSignal)
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	s.endsWithin(10*time.Second, 1)
}

func TestSignalThatComesTwiceAtOnceStillDrains(t *testing.T) {
	s := servePiped(t, "400ms")
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	s.complete(3) // in the grace
	s.endsWithin(20*time.Second, 0)
}
