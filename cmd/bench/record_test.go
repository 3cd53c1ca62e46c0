package bench

import (
	"testing"
	"time"
)

// at is a moment of a scripted clock, in ms.
func at(n int) time.Time {
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Millisecond)
}

// script books events at given times on a request that was due at 100 ms and
// sent at 110 ms.
func script(t *testing.T, events ...any) *Record {
	t.Helper()
	r := &Record{Due: at(100), Sent: at(110)}
	for i := 0; i < len(events); i += 2 {
		if err := r.event(at(events[i].(int)), []byte(events[i+1].(string))); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.finish(); err != nil {
		t.Fatal(err)
	}
	return r
}

const (
	roleEvent   = `{"choices":[{"delta":{"role":"assistant","content":""}}]}`
	helloEvent  = `{"choices":[{"delta":{"content":"hello"}}]}`
	thinkEvent  = `{"choices":[{"delta":{"reasoning":"hm"}}]}`
	finishEvent = `{"choices":[{"delta":{},"finish_reason":"stop"}]}`
	usageEvent  = `{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5}}`
)

func wantMs(t *testing.T, what string, got time.Duration, want float64) {
	t.Helper()
	if ms(got) != want {
		t.Errorf("%s is %g ms, want %g", what, ms(got), want)
	}
}

func TestTimesOfAChatStream(t *testing.T) {
	r := script(t, 150, roleEvent, 210, helloEvent, 250, helloEvent, 310, finishEvent, 315, usageEvent, 316, "[DONE]")
	wantMs(t, "ttft", r.TTFT(), 100)
	wantMs(t, "vLLM's ttft", r.TTFTEvent(), 40)
	wantMs(t, "latency", r.Latency(), 200)
	wantMs(t, "client queue", r.Queued(), 10)
	if len(r.ITL) != 2 || ms(r.ITL[0]) != 40 || ms(r.ITL[1]) != 60 {
		t.Errorf("gaps %v, want 40 and 60 ms", r.ITL)
	}
	tpot, _ := r.TPOT()
	wantMs(t, "tpot", tpot, (200.0-100)/4)
	if r.InputTokens != 7 || r.OutputTokens != 5 || r.Estimated {
		t.Errorf("tokens %d in, %d out, estimated %t", r.InputTokens, r.OutputTokens, r.Estimated)
	}
}

func TestReasoningCountsAsText(t *testing.T) {
	r := script(t, 150, roleEvent, 170, thinkEvent, 210, helloEvent, 310, finishEvent)
	wantMs(t, "ttft", r.TTFT(), 60)
	if r.Text != "hmhello" {
		t.Errorf("text %q", r.Text)
	}
}

func TestWithoutTextTheFirstEventIsTheFirstToken(t *testing.T) {
	r := script(t, 150, roleEvent, 310, finishEvent)
	wantMs(t, "ttft", r.TTFT(), 40)
	wantMs(t, "latency", r.Latency(), 200)
}

func TestWithoutUsageEventsAreCounted(t *testing.T) {
	r := script(t, 150, helloEvent, 160, helloEvent, 170, finishEvent)
	if !r.Estimated || r.OutputTokens != 3 {
		t.Errorf("estimated %t, %d tokens; want true, 3", r.Estimated, r.OutputTokens)
	}
}

func TestASingleTokenHasNoTPOT(t *testing.T) {
	r := &Record{OutputTokens: 1}
	if _, ok := r.TPOT(); ok {
		t.Error("there is a TPOT")
	}
}

func TestErrorsOfTheServerCannotDriveTheTerminal(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":{"message":"full \u001b[2J\u0007"}}`: "full ·[2J·",
		`{"error":"a\u202eb"}`:                         "a·b",
		`{"detail":"é\n"}`:                             "é·",
		"<html>\x1b]0;x\x07\r\n":                       "<html>·]0;x···",
	} {
		if got := errorMessage([]byte(body)); got != want {
			t.Errorf("%q: %q, want %q", body, got, want)
		}
	}
}
