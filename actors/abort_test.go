package actors

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"waybill/actors/sched"
	"waybill/actors/waybill"
)

// gate is a fault hook that can hold one point of the actors' work.
type gate struct {
	point string
	held  atomic.Bool
	reach chan struct{} // one token per arrival while held
	open  chan struct{} // one token lets one arrival pass
}

func newGate(point string) *gate {
	return &gate{point: point, reach: make(chan struct{}, 1000), open: make(chan struct{}, 1000)}
}

func (g *gate) hook(point string) {
	if point == g.point && g.held.Load() {
		g.reach <- struct{}{}
		<-g.open
	}
}

// arrive waits until the actor stands at the gate.
func (g *gate) arrive(t *testing.T) {
	t.Helper()
	select {
	case <-g.reach:
	case <-time.After(10 * time.Second):
		t.Fatalf("nobody reached %q within 10 s", g.point)
	}
}

// release opens the gate for good.
func (g *gate) release() {
	g.held.Store(false)
	for range 100 {
		g.open <- struct{}{}
	}
}

// offers notes which sequences the plan on offer names. The Scheduler owns plans
// that were not taken, so it looks on the Scheduler's goroutine.
type offers struct {
	mu  sync.Mutex
	e   *testEngine
	ids []sched.SeqID
}

func (o *offers) watch(e *testEngine) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.e = e
}

func (o *offers) hook(point string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if point != "published" || o.e == nil {
		return
	}
	o.ids = o.ids[:0]
	if p := o.e.pipe.Load().slot.Load(); p != nil {
		for i := range p.Rows {
			o.ids = append(o.ids, p.Rows[i].Seq)
		}
	}
}

func (o *offers) get() []sched.SeqID {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.ids)
}

// longIDs returns n ids of the tiny model's vocabulary.
func longIDs(n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(5 + i*7%200)
	}
	return ids
}

// success returns how many sequences ended for reason r.
func (e *testEngine) success(r waybill.Reason) int {
	families, err := e.Gatherer().Gather()
	if err != nil {
		e.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "vllm:request_success_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "finished_reason" && l.GetValue() == r.String() {
					return int(m.GetCounter().GetValue())
				}
			}
		}
	}
	e.t.Fatalf("no vllm:request_success_total for %s", r)
	return 0
}

// eventually waits until ok holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(200 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// abortCase aborts one request at a moment of its life while another request
// runs, which must not notice.
func abortCase(t *testing.T, stream bool, at waybill.Milestone, steps int) {
	g := newGate("step")
	cfg := testConfig()
	o := &offers{}
	cfg.Fault = func(p string) { g.hook(p); o.hook(p) }
	if at == waybill.Queued {
		cfg.MaxSeqs = 1
	}
	e := startEngine(t, cfg)
	o.watch(e)
	t.Cleanup(g.release)
	other := goldens(t)[3]
	var wg sync.WaitGroup
	r1 := e.request(other.IDs, len(other.Tokens))
	g.held.Store(true)
	wg.Go(func() {
		got, err := e.serve(r1, &testConn{})
		if err != nil || fmt.Sprint(got) != fmt.Sprint(other.Tokens) {
			t.Errorf("the other stream changed: %v\n got %v\nwant %v", err, got, other.Tokens)
		}
	})
	g.arrive(t) // the other request's first step stands still

	victim := e.request(longIDs(300), 500)
	victim.Stream = stream
	w := e.Submit(victim)
	bill := victim.Sequences()[0].Bill
	served := make(chan error, 1)
	conn := &testConn{}
	go func() {
		err := w.First()
		if err == nil && stream {
			_, err = w.WriteTo(conn, conn)
		}
		victim.ResponseDone(e.Engine)
		served <- err
	}()
	for n := 0; bill.At(at) == 0; n++ {
		if n == 100 {
			t.Fatalf("%v was not reached within 100 steps", at)
		}
		if at <= waybill.Queued {
			time.Sleep(time.Millisecond)
			continue
		}
		g.open <- struct{}{}
		g.arrive(t)
		time.Sleep(time.Millisecond)
	}
	e.HungUp(victim)
	if err := <-served; !errors.Is(err, ErrAborted) {
		t.Errorf("the aborted request's writer ended with %v, want %v", err, ErrAborted)
	}
	if strings.Contains(conn.String(), "failure") {
		t.Errorf("an aborted client got an event: %q", conn.String())
	}
	eventually(t, "no plan on offer names the victim", func() bool {
		offer := o.get()
		return len(offer) > 0 && !slices.Contains(offer, victim.Sequences()[0].ID)
	})
	// After the step that runs now no step may hold the victim: its place is back
	// at the next StepDone, or at once if it held nothing.
	for range steps {
		g.open <- struct{}{}
		g.arrive(t)
	}
	eventually(t, "the victim is released", func() bool { return bill.At(waybill.Released) != 0 })
	g.release()
	wg.Wait()
	e.quiet()
	eventually(t, "the ledger booked both", func() bool { return e.success(waybill.Length) == 1 })
	if n := e.success(waybill.Abort); n != 1 {
		t.Errorf("aborts counted: %d, want 1", n)
	}
	if bill.At(waybill.HungUp) == 0 || bill.At(waybill.Ended) == 0 {
		t.Error("the hang-up or the end was not stamped")
	}
}

func TestAbortWhileQueued(t *testing.T) {
	abortCase(t, true, waybill.Queued, 0)
	abortCase(t, false, waybill.Queued, 0)
}

func TestAbortInPrefillEndsWithTheStep(t *testing.T) {
	abortCase(t, true, waybill.Scheduled, 1)
	abortCase(t, false, waybill.Scheduled, 1)
}

func TestAbortInDecodeEndsWithTheStep(t *testing.T) {
	abortCase(t, true, waybill.FirstText, 1)
	abortCase(t, false, waybill.FirstText, 1)
}

func TestAbortInIntakeNeverReachesTheScheduler(t *testing.T) {
	g := newGate("intake")
	g.held.Store(true)
	cfg := testConfig()
	cfg.Fault = g.hook
	e := startEngine(t, cfg)
	r := e.request(longIDs(10), 5)
	w := e.Submit(r)
	g.arrive(t)
	e.Abort(r)
	if err := w.First(); !errors.Is(err, ErrAborted) {
		t.Fatalf("First: %v, want %v", err, ErrAborted)
	}
	r.ResponseDone(e.Engine)
	g.release()
	e.quiet()
	if at := r.Sequences()[0].Bill.At(waybill.Queued); at != 0 {
		t.Error("an aborted request was queued")
	}
	eventually(t, "the ledger booked it", func() bool { return e.success(waybill.Abort) == 1 })
}

func TestAbortBeforeItsAdmitLeavesNoZombie(t *testing.T) {
	e := startEngine(t, testConfig())
	for i := range 200 {
		r := e.request(longIDs(40), 900) // too many tokens to end by itself
		r.Stream = i%2 == 0
		w := e.Submit(r)
		if i%3 == 0 {
			time.Sleep(time.Duration(i) * time.Microsecond)
		}
		e.Abort(r)
		if err := w.First(); err == nil && r.Stream {
			c := &testConn{}
			if _, err := w.WriteTo(c, c); !errors.Is(err, ErrAborted) {
				t.Fatalf("WriteTo: %v", err)
			}
		}
		r.ResponseDone(e.Engine)
	}
	e.quiet()
	eventually(t, "all aborts are booked", func() bool { return e.success(waybill.Abort) == 200 })
	g := goldens(t)[0]
	if got, err := e.serve(e.request(g.IDs, len(g.Tokens)), &testConn{}); err != nil || fmt.Sprint(got) != fmt.Sprint(g.Tokens) {
		t.Fatalf("after 200 aborts: %v %v, want %v", err, got, g.Tokens)
	}
}

func TestSlowReaderIsCutOffAndOthersGoOn(t *testing.T) {
	e := startEngine(t, testConfig())
	stuck := make(chan struct{})
	slow := e.request(longIDs(10), 900)
	slow.Encoder = fatEncoder{}
	conn := &testConn{onWrite: func(n int) error {
		if n == 1 {
			<-stuck
		}
		return nil
	}}
	ended := make(chan error, 1)
	w := e.Submit(slow)
	go func() {
		_, err := e.finish(slow, w, conn)
		ended <- err
	}()
	g := goldens(t)[1]
	if got, err := e.serve(e.request(g.IDs, len(g.Tokens)), &testConn{}); err != nil || fmt.Sprint(got) != fmt.Sprint(g.Tokens) {
		t.Errorf("beside a stuck reader: %v %v, want %v", err, got, g.Tokens)
	}
	eventually(t, "the slow reader is aborted", func() bool {
		return slow.Sequences()[0].Bill.Reason() == waybill.Abort
	})
	close(stuck)
	if err := <-ended; !errors.Is(err, ErrAborted) {
		t.Errorf("slow reader: %v, want %v", err, ErrAborted)
	}
	e.quiet()
}

// fatEncoder writes 8 KiB per token, to reach the limit soon.
type fatEncoder struct{ textEncoder }

func (fatEncoder) AppendDelta(dst []byte, d *Delta) []byte {
	return append(dst, make([]byte, 8<<10)...)
}

func TestDeadPeerAbortsItsRequest(t *testing.T) {
	e := startEngine(t, testConfig())
	broken := errors.New("broken pipe")
	r := e.request(longIDs(10), 900)
	_, err := e.serve(r, &testConn{onWrite: func(n int) error {
		if n == 3 {
			return broken
		}
		return nil
	}})
	if !errors.Is(err, broken) {
		t.Fatalf("serve: %v, want %v", err, broken)
	}
	e.quiet()
	if got := r.Sequences()[0].Bill.Reason(); got != waybill.Abort {
		t.Fatalf("reason %v, want abort", got)
	}
}
