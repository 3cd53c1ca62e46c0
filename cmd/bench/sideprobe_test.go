package bench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSideProbesAreReportedApart(t *testing.T) {
	f := newFake(t, func(w *stream, _ int, body map[string]any) {
		if body["max_tokens"] == 1.0 {
			time.Sleep(20 * time.Millisecond)
		} else {
			time.Sleep(50 * time.Millisecond)
		}
		quick(w, 0, body)
	})
	f.tokenize = true
	o := f.options()
	o.NumPrompts, o.MaxConcurrency, o.ProbeRate = 12, []int{1}, 50
	o.SaveResult, o.ResultDir, o.ResultFilename = true, t.TempDir(), "r.json"
	out, err := run(t, o)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "probes") {
		t.Errorf("the table says nothing of probes:\n%s", out)
	}
	b, err := os.ReadFile(filepath.Join(o.ResultDir, "r.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r map[string]any
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	n, _ := r["probe_completed"].(float64)
	if n < 5 || r["probe_failed"] != 0.0 || r["completed"] != 12.0 {
		t.Errorf("%v probes answered, %v failed, beside %v requests; 0.6 s at 50 per second want some 30, 0 and 12", n, r["probe_failed"], r["completed"])
	}
	if p := r["probe_median_e2el_ms"].(float64); p < 20 || p > 49 {
		t.Errorf("probes took %.1f ms, the server makes them 20: the client's limit is in it", p)
	}
	if len(f.bodies) != 13+int(n) {
		t.Errorf("%d requests, want the test request, 12 and %v probes", len(f.bodies), n)
	}
}

func TestARequestWithoutAnswerFailsInTime(t *testing.T) {
	hang := make(chan struct{})
	f := newFake(t, func(w *stream, n int, body map[string]any) {
		if n == 2 {
			w.begin()
			w.text("one")
			<-hang
			return
		}
		quick(w, n, body)
	})
	defer close(hang)
	f.tokenize = true
	o := f.options()
	o.NumPrompts, o.MaxConcurrency, o.RequestTimeout = 4, []int{1}, 200*time.Millisecond
	out, err := run(t, o)
	if err != ErrFailedRequests || !strings.Contains(out, "not answered within 200ms") {
		t.Errorf("error %v, output:\n%s", err, out)
	}
}
