package bench

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"
)

func wantFailure(t *testing.T, reason string, answer func(w *stream)) {
	t.Helper()
	r := newFake(t, func(w *stream, _ int, _ map[string]any) { answer(w) }).ask(t)
	if !strings.Contains(r.Err, reason) || r.Err == "" {
		t.Errorf("error %q, want one with %q", r.Err, reason)
	}
}

func TestClientTimesAreThoseOfTheReads(t *testing.T) {
	const before, gap = 60 * time.Millisecond, 30 * time.Millisecond
	f := newFake(t, func(w *stream, _ int, _ map[string]any) {
		w.begin()
		time.Sleep(before)
		w.text("a")
		time.Sleep(gap)
		w.text("b")
		time.Sleep(gap)
		w.end(2, 3)
	})
	start := time.Now()
	r := f.ask(t)
	whole := time.Since(start)
	if r.Err != "" {
		t.Fatal(r.Err)
	}
	if r.TTFT() < before || len(r.ITL) != 2 {
		t.Fatalf("ttft %v, gaps %v; want at least %v and two gaps", r.TTFT(), r.ITL, before)
	}
	// A late wake-up of the server may shorten a gap that follows, so only sums have
	// a sure lower bound.
	if r.Latency() < before+2*gap || r.Latency() > whole {
		t.Errorf("latency %v, want %v to %v", r.Latency(), before+2*gap, whole)
	}
	if sum := r.TTFT() + r.ITL[0] + r.ITL[1]; sum != r.Latency() {
		t.Errorf("ttft and gaps are %v, latency %v", sum, r.Latency())
	}
	if tpot, ok := r.TPOT(); !ok || tpot != (r.Latency()-r.TTFT())/2 {
		t.Errorf("tpot %v", tpot)
	}
	if r.Text != "ab" || r.InputTokens != 2 || r.OutputTokens != 3 || r.Finish != "length" {
		t.Errorf("record %+v", r)
	}
	if got := f.header[0].Get("X-Request-Id"); got != "rid-1" {
		t.Errorf("X-Request-Id %q", got)
	}
}

func TestAFailedRequestSaysWhy(t *testing.T) {
	wantFailure(t, "503 Service Unavailable: full", func(w *stream) {
		w.WriteHeader(503)
		_, _ = w.Write([]byte(`{"error":{"message":"full","type":"x","code":503}}`))
	})
	wantFailure(t, "401 Unauthorized: Unauthorized", func(w *stream) {
		w.WriteHeader(401)
		_, _ = w.Write([]byte(`{"error":"Unauthorized"}`))
	})
	wantFailure(t, "not a stream", func(w *stream) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"choices":[{"text":"x"}]}`))
	})
	wantFailure(t, "error in the stream: engine died", func(w *stream) {
		w.begin()
		w.text("a")
		w.raw("data: {\"error\":{\"message\":\"engine died\"}}\n\ndata: [DONE]\n\n")
	})
	wantFailure(t, "ended early", func(w *stream) { w.begin(); w.text("a") })
	wantFailure(t, "held no text", func(w *stream) { w.begin(); w.raw("data: [DONE]\n\n") })
	wantFailure(t, "malformed event", func(w *stream) { w.begin(); w.raw("data: nonsense\n\n") })
	wantFailure(t, "the stream broke", func(w *stream) { w.begin(); w.text("a"); panic(http.ErrAbortHandler) })
}

func TestAnErrorInTheStreamDoesNotWaitForTheServer(t *testing.T) {
	release := make(chan struct{})
	f := newFake(t, func(w *stream, _ int, _ map[string]any) {
		w.begin()
		w.raw("data: {\"error\":{\"message\":\"no\"}}\n\n")
		<-release
	})
	r := f.ask(t)
	close(release)
	if r.Err == "" {
		t.Fatal("no error")
	}
}

func TestAnIdleConnectionThatTheServerClosedIsReplaced(t *testing.T) {
	f := newFake(t, quick)
	c, err := newClient(f.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	for i := range 3 {
		r := &Record{}
		c.stream(t.Context(), "/v1/completions", "", []byte(`{}`), r)
		if r.Err != "" {
			t.Fatalf("request %d: %s", i, r.Err)
		}
		if len(c.idle) != 1 {
			t.Fatalf("request %d: %d idle connections, want 1", i, len(c.idle))
		}
		f.CloseClientConnections()
		time.Sleep(10 * time.Millisecond)
	}
}

func TestACancelledRequestFailsAtOnce(t *testing.T) {
	release := make(chan struct{})
	f := newFake(t, func(w *stream, _ int, _ map[string]any) { w.begin(); w.text("a"); <-release })
	defer close(release)
	c, err := newClient(f.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	r := &Record{}
	c.stream(ctx, "/v1/completions", "", []byte(`{}`), r)
	if r.Err != context.Canceled.Error() {
		t.Fatalf("error %q", r.Err)
	}
}
