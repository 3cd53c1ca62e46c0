package actors

import (
	"sync"
	"testing"
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
