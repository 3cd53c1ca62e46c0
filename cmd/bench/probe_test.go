package bench

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"waybill/cmd/ttft/exposition"
)

// stepped returns the arrivals of k streams' events, 1 ms apart within a step, at
// the given step ends in ms.
func stepped(k int, ends ...int) (out []time.Time) {
	for _, e := range ends {
		for i := range k {
			out = append(out, at(e+i))
		}
	}
	return out
}

func TestStepEndsAreTheFirstArrivalsOfBursts(t *testing.T) {
	for _, k := range []int{1, 4} {
		want := []int{0, 20, 40, 75, 95, 115, 135}
		stamps := stepped(k, want...)
		stamps[0], stamps[len(stamps)-1] = stamps[len(stamps)-1], stamps[0] // in any order
		got := stepEnds(stamps, k)
		if len(got) != len(want) {
			t.Fatalf("%d streams: ends %v, want %v ms", k, got, want)
		}
		for i := range want {
			if !got[i].Equal(at(want[i])) {
				t.Errorf("%d streams: end %d is %v, want %d ms", k, i, got[i], want[i])
			}
		}
	}
}

func TestPlaceInTheStep(t *testing.T) {
	ends := []time.Time{at(0), at(20), at(60)}
	p, ok := locate(ends, at(30))
	if !ok || p.phase != 0.25 || ms(p.rest) != 30 {
		t.Errorf("place %+v, %t; want phase 0.25, rest 30 ms", p, ok)
	}
	for _, outside := range []int{-1, 60, 70} {
		if _, ok := locate(ends, at(outside)); ok {
			t.Errorf("%d ms lies in a step", outside)
		}
	}
	for _, c := range [][3]int{{5, 15, 20}, {5, 25, 40}, {5, 20, 20}, {30, 90, 40}} {
		if got := longest(ends, at(c[0]), at(c[1])); ms(got) != float64(c[2]) {
			t.Errorf("longest step from %d to %d is %v, want %d ms", c[0], c[1], got, c[2])
		}
	}
}

// waits is an exposition of n waits of total steps.
func waits(t *testing.T, n, upToOne int, total float64) *exposition.Snapshot {
	t.Helper()
	s, err := exposition.Parse(strings.NewReader(fmt.Sprintf("# TYPE %[1]s histogram\n%[1]s_bucket{le=\"0.5\"} 0\n%[1]s_bucket{le=\"1\"} %[2]d\n"+
		"%[1]s_bucket{le=\"1.25\"} %[3]d\n%[1]s_bucket{le=\"+Inf\"} %[3]d\n%[1]s_sum %[4]g\n%[1]s_count %[3]d\n", waitMetric, upToOne, n, total)))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestProbesAreBookedByPhaseFromOutsideAndFromTheLedger(t *testing.T) {
	// Steps of 20 ms. A probe at phase p is answered one step after the step's end;
	// idle it took 5 ms.
	r := &probeRun{tag: "p", before: waits(t, 2, 2, 1), after: waits(t, 6, 5, 3)}
	var ends []int
	for e := 0; e <= 2000; e += 20 {
		ends = append(ends, e)
	}
	r.stamps = stepped(2, ends...)
	r.gaps = []time.Duration{20 * time.Millisecond, 20 * time.Millisecond, 26 * time.Millisecond}
	r.idle = []*Record{{Sent: at(0), FirstText: at(5)}}
	file := filepath.Join(t.TempDir(), "stderr")
	var log strings.Builder
	log.WriteString("TTFTSPLIT rid=p-0 queued=99.000 reason=length\n") // of an earlier run
	r.dumpFrom = int64(log.Len())
	for i := range 40 {
		sent := 20 + i*41 // phases 0, 0.05, …
		end := (sent/20 + 1) * 20
		rec := &Record{Sent: at(sent), FirstText: at(end + 20)}
		r.probes = append(r.probes, rec)
		if i != 7 {
			fmt.Fprintf(&log, "TTFTSPLIT rid=p-%d intake=0.100 queued=%d.000 reason=length\n", i, end-sent)
		}
	}
	r.probes = append(r.probes, &Record{Sent: at(5000), FirstText: at(5001)}, &Record{Err: "503"})
	if err := os.WriteFile(file, []byte(log.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	o := &Options{Probe: &Probe{Streams: 2, DumpFile: file}}
	rep, err := o.analyse(r)
	if err != nil {
		t.Fatal(err)
	}
	if rep.Probes != 40 || rep.Lost != 1 || rep.Failed != 1 || rep.DumpMissing != 1 {
		t.Errorf("%d probes, %d lost, %d failed, %d without a line; want 40, 1, 1, 1", rep.Probes, rep.Lost, rep.Failed, rep.DumpMissing)
	}
	for i, b := range rep.Bins {
		if len(b.Added) != 4 {
			t.Errorf("bin %d has %d probes, want 4", i, len(b.Added))
			continue
		}
		// Phases i/10 and i/10 + 0.05: the rest of the step is 20·(1 − phase).
		rest := 20 * (1 - float64(i)/10 - 0.025)
		if math.Abs(b.Rest.mean()-rest) > 1e-9 || math.Abs(b.Added.mean()-(rest+20-5)) > 1e-9 {
			t.Errorf("bin %d: rest %g, added %g; want %g, %g", i, b.Rest.mean(), b.Added.mean(), rest, rest+15)
		}
		if math.Abs(b.AddedSteps.mean()-b.Added.mean()/20) > 1e-9 {
			t.Errorf("bin %d: %g steps", i, b.AddedSteps.mean())
		}
	}
	if got := rep.Beyond.percentile(100); math.Abs(got) > 1e-9 {
		t.Errorf("a wait went %g ms beyond its step, want none", got)
	}
	if rep.TTFT.percentile(100) != 40 || rep.ITL.percentile(100) != 26 {
		t.Errorf("longest TTFT %g, ITL %g; want 40 and 26 ms", rep.TTFT.percentile(100), rep.ITL.percentile(100))
	}
	if got := rep.Queued.percentile(100); got != 20 {
		t.Errorf("longest queued %g ms, want 20: lines of earlier runs do not count", got)
	}
	if !rep.HasWait || rep.WaitCount != 4 || rep.WaitMean != 0.5 || rep.WaitMax != 1.25 || rep.WaitWithin != 0.75 {
		t.Errorf("waits: count %g, mean %g, max %g, within %g; want 4, 0.5, 1.25, 0.75", rep.WaitCount, rep.WaitMean, rep.WaitMax, rep.WaitWithin)
	}
	var b bytes.Buffer
	rep.print(&b)
	golden(t, "probe.txt", b.Bytes())
}

// engine is a fake that works in steps: all streams get a token at each tick, a
// newcomer starts at the next tick and gets its token one tick later.
type engine struct {
	mu      sync.Mutex
	cond    *sync.Cond
	step    int
	stopped bool
}

func (e *engine) wait(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for target := e.step + n; e.step < target && !e.stopped; {
		e.cond.Wait()
	}
}

func TestPhaseProbeOfAServerThatWorksInSteps(t *testing.T) {
	const step = 20 * time.Millisecond
	e := &engine{}
	e.cond = sync.NewCond(&e.mu)
	done := make(chan struct{})
	defer close(done)
	go func() {
		for tick := time.NewTicker(step); ; {
			select {
			case <-tick.C:
				e.mu.Lock()
				e.step++
				e.cond.Broadcast()
				e.mu.Unlock()
			case <-done:
				tick.Stop()
				e.mu.Lock()
				e.stopped = true
				e.cond.Broadcast()
				e.mu.Unlock()
				return
			}
		}
	}()
	f := newFake(t, nil)
	f.tokenize = true
	f.answer = func(w *stream, _ int, body map[string]any) {
		n := int(body["max_tokens"].(float64))
		w.begin()
		if n == 1 && f.open.Load() > 1 {
			e.wait(2)
		}
		for i := range n {
			if i > 0 {
				e.wait(1)
			}
			w.text("x")
		}
		w.end(16, n)
	}
	o := f.options()
	o.Probe = &Probe{Streams: 2, Count: 15, Idle: 5, InputLen: 16, StreamLen: 1000}
	out, err := run(t, o)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(out, "phase probe: 15 requests into 2 decoding streams") {
		t.Errorf("report:\n%s", out)
	}
	mean := func(name string) (v float64) {
		t.Helper()
		_, after, ok := strings.Cut(out, name)
		if !ok {
			t.Fatalf("no %q:\n%s", name, out)
		}
		if _, err := fmt.Sscan(after, &v); err != nil {
			t.Fatalf("%q: %v:\n%s", name, err, out)
		}
		return v
	}
	// Ticks come late on a busy machine, so all is told in steps: the streams get a token at each, and a probe
	// waits for one to two.
	tick := mean("  step, ms")
	if itl := mean("ITL of the streams meanwhile, ms"); itl < 0.7*tick || itl > 1.5*tick {
		t.Errorf("mean ITL %g ms, want about a step of %g ms:\n%s", itl, tick, out)
	}
	if added := mean("added wait, ms"); added < tick || added > 3*tick {
		t.Errorf("mean added wait %g ms, want about 1.5 steps of %g ms:\n%s", added, tick, out)
	}
}
