package actors

import (
	"sync"
	"testing"
	"time"
)

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

func TestHandoffWaitsForTheLastRow(t *testing.T) {
	h := newHandoff()
	timer := stoppedTimer()
	for range 100 {
		turn := h.reset(3)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { turn.done(1) })
		}
		turn.wait(timer)
		wg.Wait()
		if n := h.pending(); n > 0 {
			// Patience may run out on a busy machine; the count must still be right.
			t.Fatalf("%d rows pending after all were counted down", n)
		}
	}
}

func TestHandoffIsPatientButNotForEver(t *testing.T) {
	h := newHandoff()
	never := h.reset(1)
	began := time.Now()
	never.wait(stoppedTimer())
	if d := time.Since(began); d < handoffPatience || d > time.Second {
		t.Fatalf("waited %v for a writer that never came, patience is %v", d, handoffPatience)
	}
	// The straggler of an old step must not end a later one's wait early, nor be
	// missing in its count.
	old := h.reset(1)
	next := h.reset(1)
	old.done(1)
	if n := h.pending(); n != 1 {
		t.Fatalf("%d rows pending after an old turn was counted down, want 1", n)
	}
	next.done(1)
	began = time.Now()
	next.wait(stoppedTimer())
	if d := time.Since(began); d > handoffPatience {
		t.Fatalf("waited %v although nothing was pending", d)
	}
	var none turn
	none.done(1) // a row without a countdown
}

func TestEveryRowIsCountedDown(t *testing.T) {
	e := startEngine(t, testConfig())
	var wg sync.WaitGroup
	for i, g := range goldens(t) {
		wg.Go(func() {
			r := e.request(g.IDs, len(g.Tokens))
			r.Stream = i%2 == 0
			if _, err := e.serve(r, &testConn{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	e.quiet()
	for i, h := range e.pipe.Load().handoffs {
		eventually(t, "the countdown is zero", func() bool { return h.pending() == 0 })
		if n := h.pending(); n != 0 {
			t.Errorf("handoff %d ends at %d", i, n)
		}
	}
}
