package top

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"waybill/actors"
)

func TestTextOfTheServerCannotDriveTheTerminal(t *testing.T) {
	m := &model{url: "http://x", width: 80, height: 24}
	s := &actors.Snapshot{Ready: true, Model: "m\x1b[2J\r\nowned\u202e", Pipeline: []actors.StageView{{Kind: "intake", State: "\x1b]0;t\a"}}}
	s.Requests.Live = []actors.RequestView{{RID: "a\x1b[31mb", State: "s\x1b[2J"}}
	s.Steps = []actors.StepView{{GapActor: "g\x1b[2J\u202e"}}
	s.Pipeline[0].Kind = "k\a"
	s.Memory.BlocksTotal, s.Memory.BlocksUsed = 10, -1 // nor end it
	m.take(s)
	for m.tab = range tabs {
		text := sgr.ReplaceAllString(m.screen(), "")
		if strings.ContainsAny(text, "\x1b\a\r\u202e") {
			t.Errorf("%s lets control characters through: %q", tabs[m.tab], text)
		}
	}
}

func TestScreensFitTheTerminal(t *testing.T) {
	m := &model{url: "http://x", width: 40, height: 10}
	s := &actors.Snapshot{Ready: true}
	for range 50 {
		s.Requests.Live = append(s.Requests.Live, actors.RequestView{RID: strings.Repeat("r", 100)})
		s.Steps = append(s.Steps, actors.StepView{Step: 1})
	}
	m.take(s)
	for m.tab = range tabs {
		lines := strings.Split(m.screen(), "\n")
		if len(lines) > 10 {
			t.Errorf("%s has %d lines in a terminal of 10", tabs[m.tab], len(lines))
		}
		for _, l := range lines {
			if n := len([]rune(sgr.ReplaceAllString(l, ""))); n > 40 {
				t.Errorf("%s has a line of %d characters in a terminal of 40: %q", tabs[m.tab], n, l)
			}
		}
	}
}

func TestOnceSaysWhyThereIsNothing(t *testing.T) {
	m := &model{feed: &feed{out: make(chan any, 1)}}
	m.feed.out <- errNothing{}
	var b strings.Builder
	if err := m.once(t.Context(), &b); err != (errNothing{}) {
		t.Errorf("error %v", err)
	}
}

type errNothing struct{}

func (errNothing) Error() string { return "nothing" }

// A server that takes the connection and says nothing holds nobody who has asked
// to end.
func TestOnceEndsWithItsContext(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for range 20 { // the server's silence and the end race
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		done := make(chan error, 1)
		go func() { done <- Run(ctx, Options{URL: "http://" + ln.Addr().String(), Once: true, Out: io.Discard}) }()
		select {
		case err := <-done:
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("it does not end")
		}
		cancel()
	}
}
