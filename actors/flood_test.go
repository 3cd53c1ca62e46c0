package actors

import (
	"sync"
	"testing"
	"time"
)

// flood submits n requests one after another, as places come free, and aborts each before
// Intake, which intake holds, has looked at it. It returns what waits for their ends.
func (e *testEngine) flood(t *testing.T, n int, intake *sync.Mutex) (ended *sync.WaitGroup) {
	t.Helper()
	ended = &sync.WaitGroup{}
	for range n {
		eventually(t, "a place is free", func() bool {
			used, _ := e.Load()
			return used < e.cfg.MaxQueuedReqs-2
		})
		r := e.request(longIDs(20), 10)
		intake.Lock()
		w := e.Submit(r)
		e.Abort(r)
		intake.Unlock()
		ended.Go(func() { _, _ = e.finish(r, w, &testConn{}) })
	}
	return ended
}

// floodGate sets few places, and faults that hold one point of the actors' work, and Intake.
func floodGate(cfg *Config, point string, intake *sync.Mutex) *gate {
	g := newGate(point)
	cfg.MaxQueuedReqs = 4
	cfg.Fault = func(point string) {
		if g.hook(point); point == "intake" {
			intake.Lock()
			defer intake.Unlock()
		}
	}
	return g
}

// Places of requests that end on their way come free before a Detokenizer that stands still
// has told anybody: their number does not bound its messages. None of them may be lost, or
// a client would wait for ever.
func TestEveryEndIsToldByADetokenizerThatStoodStill(t *testing.T) {
	var intake sync.Mutex
	cfg := testConfig()
	g := floodGate(&cfg, "detokenizer", &intake)
	cfg.Detokenizers = 1
	e := startEngine(t, cfg)
	t.Cleanup(g.release)
	g.held.Store(true)
	ended := e.flood(t, 3*(e.ring()+tokenRing), &intake)
	g.release()
	within(t, "every request has ended", ended)
	e.quiet()
}

// The same of the Scheduler: it gets an abort for every request that ended on its way, while
// it stands still, and then a request and another's abort.
func TestASchedulerThatStoodStillHasLostNobody(t *testing.T) {
	var intake sync.Mutex
	cfg := testConfig()
	g := floodGate(&cfg, "scheduler", &intake)
	e := startEngine(t, cfg)
	t.Cleanup(g.release)
	var wg sync.WaitGroup
	stream := e.request(longIDs(20), 900)
	w := e.Submit(stream)
	wg.Go(func() { _, _ = e.finish(stream, w, &testConn{}) })
	eventually(t, "the stream runs", func() bool { return e.metrics.generated.Load() > 0 })
	g.held.Store(true)
	g.arrive(t)
	ended := e.flood(t, 3*e.ring(), &intake)
	e.Abort(stream)
	r := e.request(longIDs(20), 10)
	w = e.Submit(r)
	var got []int32
	var err error
	wg.Go(func() { got, err = e.finish(r, w, &testConn{}) })
	eventually(t, "it is on its way to the Scheduler", func() bool { return r.Sequences()[0].posted.Load() })
	g.release()
	within(t, "every request has ended", ended, &wg)
	if err != nil || len(got) != 10 {
		t.Errorf("the request that came last: %v, %v", got, err)
	}
	e.quiet()
	if n := e.metrics.generated.Load(); n > 600 {
		t.Errorf("%d tokens were made: the stream was not aborted", n)
	}
}

// within fails if not all is over after some seconds.
func within(t *testing.T, what string, groups ...*sync.WaitGroup) {
	t.Helper()
	over := make(chan struct{})
	go func() {
		for _, g := range groups {
			g.Wait()
		}
		close(over)
	}()
	select {
	case <-over:
	case <-time.After(10 * time.Second):
		t.Fatalf("not within 10 s: %s", what)
	}
}
