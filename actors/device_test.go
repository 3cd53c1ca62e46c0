package actors

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"waybill/actors/sched"
	"waybill/actors/waybill"
	"waybill/kernels"
)

// device is an executor that a test can make fail.
type device struct {
	Executor
	plan   *sched.Plan
	before func(plan *sched.Plan) error                         // before a step
	after  func(plan *sched.Plan, results []sched.Result) error // after it
}

func (d *device) Launch(p *sched.Plan, keep []bool, results []sched.Result) {
	d.plan = p
	d.Executor.Launch(p, keep, results)
}

func (d *device) Wait(results []sched.Result, extras []*tokenExtras, meanwhile kernels.Meanwhile) error {
	if d.before != nil {
		if err := d.before(d.plan); err != nil {
			return err
		}
	}
	if err := d.Executor.Wait(results, extras, meanwhile); err != nil {
		return err
	}
	if d.after != nil {
		return d.after(d.plan, results)
	}
	return nil
}

func TestLogitsThatAreNotFiniteFailTheirRequestAlone(t *testing.T) {
	for _, stream := range []bool{true, false} {
		var victim atomic.Pointer[Sequence]
		cfg := testConfig()
		cfg.Wrap = func(x Executor) Executor {
			return &device{Executor: x, after: func(p *sched.Plan, results []sched.Result) error {
				for i := range p.Rows {
					if v := victim.Load(); v != nil && p.Rows[i].Seq == v.ID && p.Rows[i].Generated == 3 {
						results[i].Failed = true
					}
				}
				return nil
			}}
		}
		e := startEngine(t, cfg)
		var wg sync.WaitGroup
		for i, g := range goldens(t) {
			wg.Go(func() {
				if got, err := e.serve(e.request(g.IDs, len(g.Tokens)), &testConn{}); err != nil || fmt.Sprint(got) != fmt.Sprint(g.Tokens) {
					t.Errorf("prompt %d: %v %v, want %v", i, err, got, g.Tokens)
				}
			})
		}
		r := e.request(longIDs(30), 50)
		r.Stream = stream
		w := e.Submit(r)
		victim.Store(r.Sequences()[0])
		c := &testConn{}
		err := w.First()
		if err == nil && stream {
			_, err = w.WriteTo(c, c)
			if err != nil || strings.Count(c.String(), "failure 500") != 1 {
				t.Errorf("the failed stream got %v %q, want one error event", err, c.String())
			}
		} else {
			var f *Failure
			if !errors.As(err, &f) || f.Status != 500 || !strings.Contains(f.Message, "not finite") {
				t.Errorf("the failed request got %v, want a 500 that says why", err)
			}
		}
		r.ResponseDone(e.Engine)
		wg.Wait()
		e.quiet()
		eventually(t, "the error is booked", func() bool { return e.success(waybill.Error) == 1 })
	}
}

// TestOutOfMemoryFailsOneBatch lets one step find no memory: whoever was in it gets a
// 503 and everybody later is served.
func TestOutOfMemoryFailsOneBatch(t *testing.T) {
	cfg := testConfig()
	var full atomic.Bool
	cfg.Wrap = func(x Executor) Executor {
		return &device{Executor: x, before: func(p *sched.Plan) error {
			if p.Rows[0].Generated >= 3 && full.CompareAndSwap(true, false) {
				return fmt.Errorf("a test: %w", kernels.ErrOutOfMemory)
			}
			return nil
		}}
	}
	cfg.OnFatal = func(err error) { t.Errorf("the engine gave up: %v", err) }
	e := startEngine(t, cfg)
	for range 3 {
		full.Store(true)
		c := &testConn{}
		_, err := e.serve(e.request(longIDs(20), 50), c)
		var f *Failure
		if err == nil && strings.Count(c.String(), "failure 503") == 1 {
			continue
		}
		if !errors.As(err, &f) || f.Status != 503 || !strings.Contains(f.Message, "out of memory") {
			t.Errorf("the request got %v and %q, want a 503 that says why", err, c.String())
		}
	}
	for i, g := range goldens(t) {
		if got, err := e.serve(e.request(g.IDs, len(g.Tokens)), &testConn{}); err != nil || fmt.Sprint(got) != fmt.Sprint(g.Tokens) {
			t.Errorf("prompt %d after it: %v %v, want %v", i, err, got, g.Tokens)
		}
	}
	e.quiet()
}

func TestDeviceErrorEndsTheProcessAndAnswersEverybody(t *testing.T) {
	broken := errors.New("the device fell off the bus")
	cfg := testConfig()
	var steps atomic.Int64
	cfg.Wrap = func(x Executor) Executor {
		return &device{Executor: x, before: func(*sched.Plan) error {
			if steps.Add(1) >= 5 {
				return broken
			}
			return nil
		}}
	}
	fatal := make(chan error, 1)
	cfg.OnFatal = func(err error) { fatal <- err }
	e := startEngine(t, cfg)
	var wg sync.WaitGroup
	var requests [3]*Request
	for i := range requests { // all have their places before the first one's steps end the process
		requests[i] = e.request(longIDs(20), 100)
	}
	for _, r := range requests {
		wg.Go(func() {
			c := &testConn{}
			_, err := e.serve(r, c)
			if err == nil && !strings.Contains(c.String(), "failure 500") {
				t.Errorf("a request outlived its device: %q", c.String())
			}
		})
	}
	wg.Wait()
	if err := <-fatal; !errors.Is(err, broken) {
		t.Errorf("the reason is %v, want %v", err, broken)
	}
}

func TestHungStepIsIllHealthAndThenAnswered(t *testing.T) {
	cfg := testConfig()
	cfg.StallAfter = 30 * time.Millisecond
	hang := make(chan struct{})
	var steps atomic.Int64
	cfg.Wrap = func(x Executor) Executor {
		return &device{Executor: x, before: func(*sched.Plan) error {
			if steps.Add(1) == 3 {
				<-hang
			}
			return nil
		}}
	}
	e := startEngine(t, cfg)
	if err := e.Healthy(); err != nil {
		t.Fatalf("an idle engine is ill: %v", err)
	}
	done := make(chan error, 1)
	r := e.request(longIDs(20), 10)
	go func() {
		_, err := e.serve(r, &testConn{})
		done <- err
	}()
	eventually(t, "liveness notices the hung step", func() bool { return e.Healthy() != nil })
	close(hang)
	if err := <-done; err != nil {
		t.Errorf("the request behind the hang: %v", err)
	}
	eventually(t, "the engine is well again", func() bool { return e.Healthy() == nil })
}

// clocked is an executor with a clock of its own.
type clocked struct{ Executor }

func (clocked) Idle() (device, host time.Duration) { return 7 * time.Microsecond, 3 * time.Microsecond }

// The device's idle time is booked for steps that followed another, not for one launched from rest.
func TestDeviceIdleIsBookedBetweenSteps(t *testing.T) {
	cfg := testConfig()
	cfg.Wrap = func(x Executor) Executor { return clocked{x} }
	// Its steps end when the next one is on offer, however busy the machine is.
	e, _ := startPolled(t, cfg, func(d *polled) { d.poll = d.prepares })
	g := goldens(t)[0]
	if _, err := e.serve(e.request(g.IDs, len(g.Tokens)), &testConn{}); err != nil {
		t.Fatal(err)
	}
	e.quiet()
	f, err := e.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]uint64{}
	for _, f := range f {
		for _, m := range f.GetMetric() {
			h := m.GetHistogram()
			counts[f.GetName()] += h.GetSampleCount()
			want := map[string]float64{"waybill:device_idle_seconds": 7e-6, "waybill:device_idle_host_seconds": 3e-6}[f.GetName()]
			if want == 0 || h.GetSampleCount() == 0 {
				continue
			}
			if mean := h.GetSampleSum() / float64(h.GetSampleCount()); math.Abs(mean-want) > 1e-7 {
				t.Errorf("%s: mean %g s, want %g", f.GetName(), mean, want)
			}
		}
	}
	n := counts["waybill:step_gap_by_membership_seconds"]
	if idle, host := counts["waybill:device_idle_seconds"], counts["waybill:device_idle_host_seconds"]; n == 0 || idle != n || host != n {
		t.Errorf("%d idle times, %d of the host, want as many as gaps: %d", idle, host, n)
	}
}
