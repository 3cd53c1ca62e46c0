package actors

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"waybill/actors/mailbox"
	"waybill/actors/waybill"
)

// planted panics once, at the n-th arrival at a point.
type planted struct {
	point string
	n     atomic.Int64
}

func (p *planted) hook(point string) {
	if point == p.point && p.n.Add(-1) == 0 {
		panic("planted at " + point)
	}
}

// failureCase kills an actor at its n-th piece of work while six requests run.
// Every client must get exactly one terminal event, nothing may leak, and the
// next answer must be right.
func failureCase(t *testing.T, point string, n int64) {
	p := &planted{point: point}
	cfg := testConfig()
	cfg.Fault = p.hook
	var reports atomic.Int64
	cfg.OnReport = func(mailbox.Failure) { reports.Add(1) }
	e := startEngine(t, cfg)
	p.n.Store(n)
	var wg sync.WaitGroup
	var failed, right atomic.Int64
	for i, g := range goldens(t) {
		wg.Go(func() {
			r := e.request(g.IDs, len(g.Tokens))
			r.Stream = i%2 == 0
			c := &testConn{}
			got, err := e.serve(r, c)
			var f *Failure
			switch {
			case errors.As(err, &f) && f.Status == 500, strings.Contains(c.String(), "failure 500"):
				failed.Add(1)
				if strings.Count(c.String(), "failure")+strings.Count(c.String(), "end") > 1 {
					t.Errorf("two terminal events: %q", c.String())
				}
			case err == nil && fmt.Sprint(got) == fmt.Sprint(g.Tokens):
				right.Add(1)
			default:
				t.Errorf("prompt %d: error %v, tokens %v, want %v or an error 500", i, err, got, g.Tokens)
			}
		})
	}
	wg.Wait()
	if p.n.Load() > 0 {
		t.Fatalf("the fault at %s was never reached", point)
	}
	if reports.Load() != 1 {
		t.Errorf("%d failures reported, want 1", reports.Load())
	}
	e.quiet()
	eventually(t, "the engine is ready again", func() bool { return e.Ready() == nil })
	for i, g := range goldens(t) {
		got, err := e.serve(e.request(g.IDs, len(g.Tokens)), &testConn{})
		if err != nil || fmt.Sprint(got) != fmt.Sprint(g.Tokens) {
			t.Errorf("after the failure, prompt %d: %v %v, want %v", i, err, got, g.Tokens)
		}
	}
	e.quiet()
	eventually(t, "every sequence is booked once", func() bool {
		return e.success(waybill.Length)+e.success(waybill.Error)+e.success(waybill.Abort) == 12
	})
	t.Logf("%s #%d: %d failed, %d right", point, n, failed.Load(), right.Load())
}

func TestEveryActorMayFailAtAnyTime(t *testing.T) {
	for _, point := range []string{"intake", "scheduler", "decide", "bind", "launch", "step", "detokenizer"} {
		for _, n := range []int64{1, 3, 10} {
			if point == "intake" && n > 6 {
				continue
			}
			t.Run(fmt.Sprintf("%s-%d", point, n), func(t *testing.T) { failureCase(t, point, n) })
		}
	}
}

func TestThirdFailureEndsTheProcess(t *testing.T) {
	cfg := testConfig()
	var left atomic.Int64
	left.Store(maxFailures)
	cfg.Fault = func(point string) {
		if point == "step" && left.Add(-1) >= 0 {
			panic("planted")
		}
	}
	fatal := make(chan error, 1)
	cfg.OnFatal = func(err error) { fatal <- err }
	e := startEngine(t, cfg)
	r := e.request(longIDs(10), 20)
	if _, err := e.serve(r, &testConn{}); err == nil {
		t.Fatal("a request outlived three failures")
	}
	if err := <-fatal; err == nil {
		t.Fatal("no reason was given")
	}
	if e.Ready() == nil || e.Healthy() == nil {
		t.Fatal("a dead engine is ready or healthy")
	}
	if _, err := e.Reserve(1, 1); err == nil {
		t.Fatal("a dead engine took a request")
	}
}
