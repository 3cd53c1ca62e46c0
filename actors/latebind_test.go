package actors

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"waybill/actors/waybill"
)

// hold starts a request and stops its step number n at the gate.
func hold(t *testing.T, e *testEngine, g *gate, wg *sync.WaitGroup, n int) *Request {
	t.Helper()
	t.Cleanup(g.release)
	r := e.request(longIDs(20), 200)
	g.held.Store(true)
	wg.Go(func() {
		if _, err := e.serve(r, &testConn{}); err != nil {
			t.Errorf("running stream: %v", err)
		}
	})
	for range n {
		g.arrive(t)
		g.open <- struct{}{}
	}
	g.arrive(t)
	return r
}

func TestNewcomerJoinsTheStepAfterTheOneThatRuns(t *testing.T) {
	g := newGate("step")
	cfg := testConfig()
	o := &offers{}
	cfg.Fault = func(p string) { g.hook(p); o.hook(p) }
	e := startEngine(t, cfg)
	o.watch(e)
	var wg sync.WaitGroup
	hold(t, e, g, &wg, 3)
	// A step runs and stands still. A newcomer arrives and is prepared meanwhile.
	late := e.request(longIDs(8), 4)
	w := e.Submit(late)
	wg.Go(func() {
		if _, err := e.finish(late, w, &testConn{}); err != nil {
			t.Errorf("newcomer: %v", err)
		}
	})
	eventually(t, "the newcomer is in the plan on offer", func() bool { return len(o.get()) == 2 })
	if at := late.Sequences()[0].Bill.At(waybill.Scheduled); at != 0 {
		t.Fatal("the newcomer was scheduled although no step was launched")
	}
	g.release()
	wg.Wait()
	b := late.Sequences()[0].Bill
	eventually(t, "its wait is known", func() bool { return b.At(waybill.Scheduled) != 0 })
	if n := b.StepsWaited.Load(); n != 1 {
		t.Errorf("the newcomer waited for %d steps to end, want 1: the one that ran", n)
	}
	wait, step := b.At(waybill.Scheduled)-b.At(waybill.Tokenized), b.WaitStepNs.Load()
	if wait > step+int64(time.Millisecond) {
		t.Errorf("wait %v, more than the step that ran (%v) and 1 ms", time.Duration(wait), time.Duration(step))
	}
	e.quiet()
}

func TestAdmitBehindAStepDoneIsNotAStepLate(t *testing.T) {
	// StepDone and Admit lie in the mailbox together: one decision sees both.
	g := newGate("step")
	s := newGate("scheduler")
	cfg := testConfig()
	o := &offers{}
	cfg.Fault = func(p string) { g.hook(p); s.hook(p); o.hook(p) }
	e := startEngine(t, cfg)
	o.watch(e)
	var wg sync.WaitGroup
	hold(t, e, g, &wg, 2)
	s.held.Store(true)
	// An abort for nobody makes the Scheduler stand at its gate.
	e.pipe.Load().sched.Tell(stopped{&Sequence{ID: 1 << 60}})
	s.arrive(t)
	g.open <- struct{}{} // the step ends while the Scheduler stands still
	eventually(t, "StepDone is posted", func() bool { return e.pipe.Load().sched.Depth() >= 1 })
	late := e.request(longIDs(8), 4)
	w := e.Submit(late)
	wg.Go(func() {
		if _, err := e.finish(late, w, &testConn{}); err != nil {
			t.Errorf("newcomer: %v", err)
		}
	})
	eventually(t, "Admit is posted", func() bool { return e.pipe.Load().sched.Depth() >= 2 })
	s.release()
	eventually(t, "the newcomer is on offer before another step ends", func() bool {
		return len(o.get()) == 2 || late.Sequences()[0].Bill.At(waybill.Scheduled) != 0
	})
	g.release()
	wg.Wait()
	e.quiet()
}

func TestParallelOutputsShareTheirPrompt(t *testing.T) {
	e := startEngine(t, testConfig())
	g := goldens(t)[4] // the longest prompts come last
	r := e.request(g.IDs, len(g.Tokens))
	r.N = 3
	r.Stream = false
	r.Places.n = 3
	e.places.seqs.Add(2)
	w := e.Submit(r)
	if err := w.First(); err != nil {
		t.Fatal(err)
	}
	choices, usage := w.Choices()
	r.ResponseDone(e.Engine)
	for i, c := range choices {
		if fmt.Sprint(c.IDs) != fmt.Sprint(g.Tokens) {
			t.Errorf("choice %d: %v, want %v", i, c.IDs, g.Tokens)
		}
	}
	if usage.Completion != 3*len(g.Tokens) {
		t.Errorf("usage counts %d output tokens, want %d", usage.Completion, 3*len(g.Tokens))
	}
	whole := int64((len(g.IDs) - 1) / 16 * 16)
	for _, s := range r.Sequences()[1:] {
		if got := s.Bill.CachedTokens.Load(); got != whole {
			t.Errorf("sequence %d found %d prompt tokens in the cache, want %d", s.Index, got, whole)
		}
	}
	e.quiet()
}

func TestPlacesAreExact(t *testing.T) {
	cfg := testConfig()
	cfg.MaxQueuedReqs = 10
	e := startEngine(t, cfg)
	var mu sync.Mutex
	var wg sync.WaitGroup
	taken := 0
	for range 64 {
		wg.Go(func() {
			if _, err := e.Reserve(1, 0); err == nil {
				mu.Lock()
				taken++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if taken != 10 {
		t.Fatalf("%d places were given, want exactly 10", taken)
	}
	if _, err := e.Reserve(1, 0); err == nil {
		t.Fatal("an eleventh place was given")
	}
	e.places.seqs.Add(-10)
	if _, err := e.Reserve(11, 0); err == nil {
		t.Fatal("11 sequences found place in 10")
	}
}
