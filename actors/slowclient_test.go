package actors

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"waybill/actors/mailbox"
)

// A client that takes no bytes must not hold the steps of the others: only the
// step whose bytes are in the blocked write counts it.
func TestNoStepWaitsForASlowClient(t *testing.T) {
	e := startEngine(t, testConfig())
	blocked, free := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	slow := e.request(longIDs(20), 400)
	wg.Go(func() {
		c := &testConn{onWrite: func(n int) error {
			if n == 2 {
				close(blocked)
				<-free
			}
			return nil
		}}
		if _, err := e.serve(slow, c); err != nil {
			t.Error(err)
		}
	})
	<-blocked
	from := e.metrics.generated.Load()
	eventually(t, "the slow client's tokens are made all the same", func() bool { return e.metrics.generated.Load() > from+50 })
	held := 0
	handoffs := e.pipe.Load().handoffs
	eventually(t, "the sequence is complete", func() bool { return slow.Sequences()[0].Bill.Reason() != 0 })
	for _, h := range handoffs {
		if h.pending() > 0 {
			held++
		}
	}
	if held > 1 {
		t.Errorf("%d of the last %d steps are held by a client that is in one write", held, len(handoffs))
	}
	close(free)
	wg.Wait()
	e.quiet()
}

// A Detokenizer that stands still for hundreds of steps gets every token of them: the
// Scheduler waits before its ring is full. Aborts find a place in it meanwhile.
func TestSlowDetokenizerLosesNoToken(t *testing.T) {
	cfg := testConfig()
	cfg.MaxQueuedReqs, cfg.Detokenizers = 8, 1
	var handled atomic.Int64
	cfg.Fault = func(point string) {
		if point == "detokenizer" && handled.Add(1) == 20 {
			time.Sleep(2 * time.Second)
		}
	}
	e := startEngine(t, cfg)
	g := goldens(t)[0]
	want, err := e.serve(e.request(g.IDs, 900), &testConn{})
	if err != nil || len(want) != 900 {
		t.Fatalf("%d tokens, %v", len(want), err)
	}
	handled.Store(0)
	began := time.Now()
	gone := make([]*Request, 6)
	for i := range gone {
		gone[i] = e.request(g.IDs, 900)
		w := e.Submit(gone[i])
		go func() { _, _ = e.finish(gone[i], w, &testConn{}) }()
	}
	r := e.request(g.IDs, 900)
	w := e.Submit(r)
	eventually(t, "the Detokenizer stands still", func() bool { return handled.Load() >= 20 })
	time.Sleep(500 * time.Millisecond) // its ring fills
	for _, r := range gone {
		e.Abort(r)
	}
	got, err := e.finish(r, w, &testConn{})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%d tokens of %d, %v", len(got), len(want), err)
	}
	if d := time.Since(began); d < 2*time.Second {
		t.Errorf("all was over after %v: nothing stood still", d)
	}
	e.quiet()
	for _, i := range e.system.Table() {
		if i.Kind == "detokenizer" && i.Refused > 0 {
			t.Errorf("%s refused %d messages", i.Name, i.Refused)
		}
	}
}

// While the Scheduler waits for a Detokenizer that stands still, that one fails, or GPU-step
// does: every client is answered all the same, once, and the server goes on.
func TestAFailureWhileTheSchedulerWaitsForADetokenizer(t *testing.T) {
	for _, fails := range []string{"detokenizer", "step"} {
		t.Run(fails, func(t *testing.T) {
			g := newGate("detokenizer")
			var armed atomic.Bool
			cfg := testConfig()
			cfg.MaxQueuedReqs, cfg.Detokenizers = 8, 1
			cfg.OnReport = func(mailbox.Failure) {}
			var steps atomic.Int64
			cfg.Fault = func(point string) {
				g.hook(point)
				switch {
				case point == "step" && fails == "step" && g.held.Load() && steps.Add(1) == tokenRing+1:
					panic("planted beside a Scheduler that waits")
				case point == "step" && g.held.Load() && fails != "step":
					steps.Add(1)
				case point == "detokenizer" && fails == "detokenizer" && armed.CompareAndSwap(true, false):
					panic("planted in a Detokenizer that is waited for")
				}
			}
			e := startEngine(t, cfg)
			t.Cleanup(g.release)
			answers := make([]testConn, 4)
			var wg sync.WaitGroup
			g.held.Store(true)
			for i := range answers {
				r := e.request(longIDs(20+i), 900)
				r.N = 1 + i%2
				if r.N > 1 {
					p, err := e.Reserve(1, 0)
					if err != nil {
						t.Fatal(err)
					}
					r.Places.n += p.n
				}
				wg.Go(func() { _, _ = e.finish(r, e.Submit(r), &answers[i]) })
			}
			eventually(t, "the Scheduler waits", func() bool { return steps.Load() > tokenRing && e.shards[0].Depth() >= tokenRing })
			armed.Store(true)
			g.release()
			within(t, "every request has ended", &wg)
			e.quiet()
			eventually(t, "the engine is ready again", func() bool { return e.Ready() == nil })
			golden := goldens(t)[0]
			if got, err := e.serve(e.request(golden.IDs, len(golden.Tokens)), &testConn{}); err != nil || !slices.Equal(got, golden.Tokens) {
				t.Errorf("the next answer: %v, %v", got, err)
			}
		})
	}
}

// No step runs while the Scheduler waits, so health says what is held up and why.
func TestAHungDetokenizerIsUnhealthy(t *testing.T) {
	g := newGate("detokenizer")
	cfg := testConfig()
	cfg.Detokenizers, cfg.StallAfter, cfg.Fault = 1, 200*time.Millisecond, g.hook
	e := startEngine(t, cfg)
	t.Cleanup(g.release)
	g.held.Store(true)
	var wg sync.WaitGroup
	wg.Go(func() {
		if got, err := e.serve(e.request(longIDs(20), 300), &testConn{}); err != nil || len(got) != 300 {
			t.Errorf("%d tokens, %v", len(got), err)
		}
	})
	eventually(t, "it is unhealthy", func() bool { return e.Healthy() != nil })
	if err := e.Healthy(); !strings.Contains(err.Error(), "detokenizer") {
		t.Error(err)
	}
	g.release()
	within(t, "the request has ended", &wg)
	if err := e.Healthy(); err != nil {
		t.Error(err)
	}
	e.quiet()
}
