package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// waits are what the request log tells about the probes: the time from tokenized
// to scheduled in ms, the same in units of the longest step it overlaps, and by
// how many ms it exceeds that step.
type waits struct{ ms, steps, over []float64 }

// probeWaits reads a JSON log.
func probeWaits(t *testing.T, log string) (w waits) {
	t.Helper()
	for _, l := range strings.Split(log, "\n") {
		var v struct {
			RID   string   `json:"rid"`
			Ms    *float64 `json:"wait_ms"`
			Steps float64  `json:"wait_steps"`
		}
		if !strings.HasPrefix(l, "{") || json.Unmarshal([]byte(l), &v) != nil {
			continue
		}
		if !strings.HasPrefix(v.RID, "probe-") || strings.Contains(v.RID, "-idle-") {
			continue
		}
		if v.Ms == nil || v.Steps == 0 {
			continue // it met no step
		}
		w.ms, w.steps = append(w.ms, *v.Ms), append(w.steps, v.Steps)
		w.over = append(w.over, *v.Ms-*v.Ms/v.Steps)
	}
	return w
}

// A newcomer beside running streams waits for the rest of one step, wherever in
// the step it comes.
func TestANewcomerWaitsForTheRestOfOneStep(t *testing.T) {
	probes, idle := "40", "5"
	if *full {
		probes, idle = "500", "100"
	}
	p := serveDefault(t, nil, "--log-format", "json")
	dir := t.TempDir()
	out := waybill(t, "bench", "--base-url", p.url, "--probe", "phase", "--probe-streams", "4", "--probe-count", probes, "--probe-idle", idle,
		"--save-result", "--result-dir", dir, "--result-filename", "probe.json")
	t.Log(out)
	b, err := os.ReadFile(filepath.Join(dir, "probe.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Done   int     `json:"probe_completed"`
		Failed int     `json:"probe_failed"`
		Lost   int     `json:"probe_lost"`
		Count  float64 `json:"ledger_wait_count"`
		Mean   float64 `json:"mean_ledger_wait_steps"`
	}
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	if r.Failed > 0 || r.Done == 0 || r.Count == 0 {
		t.Fatalf("%d probes completed, %d failed, %.0f waits in the server's histogram", r.Done, r.Failed, r.Count)
	}
	var w waits
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if w = probeWaits(t, p.log()); len(w.ms) >= r.Done {
			break
		}
	}
	n := len(w.ms)
	if n < r.Done*9/10 {
		t.Fatalf("%d of %d probes are in the log with a wait", n, r.Done)
	}
	var mean float64
	within, beyond := 0, 0
	for i := range n {
		mean += w.steps[i] / float64(n)
		if w.over[i] <= 1 {
			within++
		}
		if w.steps[i] > 2 {
			beyond++
		}
	}
	t.Logf("ledger, %d waits: mean %.3f steps (p50 %.3f p90 %.3f p99 %.3f max %.3f); %.3f ms (p99 %.3f); beyond one step by p90 %.3f p99 %.3f max %.3f ms; %.1f %% within 1 step + 1 ms",
		n, mean, quantile(w.steps, .5), quantile(w.steps, .9), quantile(w.steps, .99), quantile(w.steps, 1),
		quantile(w.ms, .5), quantile(w.ms, .99), quantile(w.over, .9), quantile(w.over, .99), quantile(w.over, 1), 100*float64(within)/float64(n))
	// Waits that are uniform in 0 to 1 step have a mean of 0.5 with a standard
	// deviation of 0.29/√n. A schedule that runs a step ahead has a mean of 1.5 and
	// half of its waits beyond one step: both bounds are far from it.
	if mean > 0.7 {
		t.Errorf("the mean wait is %.3f steps, want about half a step", mean)
	}
	if share := float64(within) / float64(n); share < 0.95 {
		t.Errorf("%.1f %% of the waits are within 1 step + 1 ms, want 95 %%", 100*share)
	}
	if *full && mean > 0.53 {
		t.Errorf("the mean of %d waits is %.3f steps, want at most 0.53", n, mean)
	}
}
