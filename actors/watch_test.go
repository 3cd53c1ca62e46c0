package actors

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// Viewers that come and go faster than a slow driver answers leave nothing behind:
// the next one gets samples, and with the last one sampling ends.
func TestHastyViewersLeaveNothingBehind(t *testing.T) {
	cfg := testConfig()
	open, held := make(chan struct{}), make(chan struct{}, 1000)
	cfg.Telemetry = func() ([]GPUInfo, error) {
		held <- struct{}{}
		<-open
		return nil, nil
	}
	e := startEngine(t, cfg)
	first, err := e.Watch()
	if err != nil {
		t.Fatal(err)
	}
	<-held
	for range 500 {
		if w, err := e.Watch(); err == nil {
			w.Close()
		}
	}
	close(open)
	first.Close()
	var w *Watcher
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		if w, err = e.Watch(); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	select {
	case <-w.Updates:
	case <-time.After(5 * time.Second):
		t.Error("a viewer gets no sample")
	}
	w.Close()
	for end := time.Now().Add(5 * time.Second); e.lane.on.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("sampling goes on without a viewer; %d messages were refused", e.droppedByInspector())
		}
	}
	if n := e.viewers.Load(); n != 0 {
		t.Errorf("%d viewers are counted after the last one left", n)
	}
}

func (e *Engine) droppedByInspector() int64 {
	for _, i := range e.system.Table() {
		if i.Name == "inspector" {
			return i.Refused
		}
	}
	return -1
}

// A sequence that has ended, but whose answer is not written yet, has neither parts
// nor a dump line: the line that is printed later would differ.
func TestNoDumpLineBeforeTheLastStamp(t *testing.T) {
	e := startEngine(t, testConfig())
	g := goldens(t)[0]
	r := e.request(g.IDs, len(g.Tokens))
	w := e.Submit(r)
	rid := r.Sequences()[0].Bill.RID
	var f *Waterfall
	look := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
			var err error
			if f, err = e.Waterfall(rid); err == nil && ok() {
				return
			} else if time.Now().After(end) {
				t.Fatalf("%s: %v, %+v", what, err, f)
			}
		}
	}
	look("the end", func() bool { return f.Reason != "running" })
	if f.Dump != "" || len(f.Parts) != 0 {
		t.Errorf("before the answer is written: parts %v, dump %q", f.Parts, f.Dump)
	}
	if _, err := e.finish(r, w, &testConn{}); err != nil {
		t.Fatal(err)
	}
	look("the dump line", func() bool { return f.Dump != "" && len(f.Parts) > 0 })
}

// A handler that is stuck right after another one of its actor ends that incident.
func TestAStuckHandlerEndsTheOneBefore(t *testing.T) {
	e := startEngine(t, testConfig())
	for i := range int64(2) {
		since := int64(time.Hour) * (i + 1)
		e.stuck.note("no-such-actor", "message", since, since+int64(2*time.Second))
	}
	list := e.stuck.incidents()
	if len(list) != 2 || !list[1].Over {
		t.Errorf("incidents, newest first: %+v", list)
	}
}

// A failure of the Inspector, at whichever message, loses no viewer and no place.
func TestViewersOutliveAFailureOfTheInspector(t *testing.T) {
	for _, at := range []int64{1, 2} { // the subscription's sample, and the timer's
		cfg := testConfig()
		var n atomic.Int64
		cfg.Telemetry = func() ([]GPUInfo, error) {
			if n.Add(1) == at {
				panic("no telemetry")
			}
			return []GPUInfo{}, nil
		}
		e := startEngine(t, cfg)
		w, err := e.Watch()
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			select {
			case <-w.Updates:
			case <-time.After(5 * time.Second):
				t.Fatalf("failure at sample %d: the viewer gets no more", at)
			}
		}
		w.Close()
		for end := time.Now().Add(5 * time.Second); e.viewers.Load() != 0 || e.lane.on.Load(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("failure at sample %d: %d viewers, lane %v after the last left", at, e.viewers.Load(), e.lane.on.Load())
			}
		}
	}
}

// An inspector that always fails costs its viewers, and no request.
func TestAFailingInspectorEndsNothingElse(t *testing.T) {
	cfg := testConfig()
	cfg.Telemetry = func() ([]GPUInfo, error) { panic("no telemetry") }
	e := startEngine(t, cfg) // its OnFatal would fail the test
	w, err := e.Watch()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for end := time.Now().Add(10 * time.Second); len(e.restarts.timeline()) < maxFailures; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d failures", len(e.restarts.timeline()))
		}
	}
	g := goldens(t)[0]
	if got, err := e.serve(e.request(g.IDs, len(g.Tokens)), &testConn{}); err != nil || fmt.Sprint(got) != fmt.Sprint(g.Tokens) {
		t.Errorf("%v, tokens %v, want %v", err, got, g.Tokens)
	}
	time.Sleep(1500 * time.Millisecond)
	if n := len(e.restarts.timeline()); n != maxFailures {
		t.Errorf("%d failures: it goes on sampling for nobody", n)
	}
}
