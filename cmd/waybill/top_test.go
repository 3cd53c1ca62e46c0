package main

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// pane is a terminal of its own inside tmux.
type pane struct {
	t    *testing.T
	name string
}

func (p *pane) tmux(args ...string) string {
	p.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-L", p.name}, args...)...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("tmux %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// until waits for text in the pane.
func (p *pane) until(want ...string) string {
	p.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		text := p.tmux("capture-pane", "-p")
		missing := ""
		for _, w := range want {
			if !strings.Contains(text, w) {
				missing = w
			}
		}
		if missing == "" {
			return text
		}
		if time.Now().After(end) {
			p.t.Fatalf("the terminal never showed %q; it shows\n%s", missing, text)
		}
	}
}

// `waybill top` shows every view of a server under load in a terminal of 100 × 30.
func TestTopInATerminal(t *testing.T) {
	needBrowser(t)
	s := startConsole(t)
	s.load(3)
	bin, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	p := &pane{t, fmt.Sprintf("waybill-test-%d", time.Now().UnixNano())}
	p.tmux("new-session", "-d", "-x", "100", "-y", "30", bin+" top "+s.url)
	defer exec.Command("tmux", "-L", p.name, "kill-server").Run()
	text := p.until("[1 overview]", "gpu-step", "sse-writer", "running 3", "last second", "KV blocks", "1-4 views")
	for _, l := range strings.Split(text, "\n") {
		if n := len([]rune(l)); n > 100 {
			t.Errorf("a line has %d characters: %q", n, l)
		}
	}
	if !strings.Contains(text, hostileName) {
		t.Errorf("the model's name is not shown as it is:\n%s", text)
	}
	p.tmux("send-keys", "2")
	p.until("[2 actors]", "detokenizer-1", "supervisor")
	p.tmux("send-keys", "3")
	p.until("[3 requests]", "running (3)", "load-")
	p.tmux("send-keys", "4")
	p.until("[4 steps]", "decode rows", "sse-writer")
	p.tmux("send-keys", "p")
	p.until("paused")
	p.tmux("send-keys", "q")
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if exec.Command("tmux", "-L", p.name, "has-session").Run() != nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal("q does not end it")
		}
	}
}
