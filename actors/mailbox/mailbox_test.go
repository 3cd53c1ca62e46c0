package mailbox

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var began = time.Now()

func testNow() int64 { return int64(time.Since(began)) }

// fn is a Handler made of two functions.
type fn struct {
	receive func(any)
	drained func()
}

func (f fn) Receive(m any) { f.receive(m) }
func (f fn) Drained() {
	if f.drained != nil {
		f.drained()
	}
}

func spawn(t *testing.T, s *System, o Options, h Handler) *Ref {
	t.Helper()
	if o.Ring == 0 {
		o.Ring = 64
	}
	if o.New == nil {
		o.New = func(*Ref) Handler { return h }
	}
	r, err := s.Spawn(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s did not happen within 10 s", what)
	}
}

func TestDrainedRunsAfterTheLastOfABurst(t *testing.T) {
	s := NewSystem(testNow)
	gate := make(chan struct{})
	var order []int
	done := make(chan struct{})
	r := spawn(t, s, Options{Name: "a"}, fn{
		receive: func(m any) {
			if m == 0 {
				<-gate
			}
			order = append(order, m.(int))
		},
		drained: func() {
			order = append(order, -1)
			if len(order) >= 6 {
				close(done)
			}
		},
	})
	for i := range 5 {
		if !r.Tell(i) {
			t.Fatalf("Tell(%d) refused", i)
		}
	}
	close(gate)
	await(t, "Drained", done)
	want := []int{0, 1, 2, 3, 4, -1}
	for i, w := range want {
		if order[i] != w {
			t.Fatalf("order %v, want %v", order, want)
		}
	}
	<-r.Stop()
}

func TestDrainedRunsWithinAFlood(t *testing.T) {
	s := NewSystem(testNow)
	gate, done := make(chan struct{}), make(chan struct{})
	handled, atDecision := 0, 0
	r := spawn(t, s, Options{Name: "a", Ring: 4 * maxBatch}, fn{
		receive: func(m any) {
			if handled == 0 {
				<-gate
			}
			handled++
		},
		drained: func() {
			if atDecision == 0 {
				atDecision = handled
				close(done)
			}
		},
	})
	for i := range 3 * maxBatch {
		r.Tell(i)
	}
	close(gate)
	await(t, "Drained", done)
	<-r.Stop()
	if atDecision != maxBatch {
		t.Fatalf("first decision after %d messages, want %d", atDecision, maxBatch)
	}
}

func TestExpressLaneIsReadFirst(t *testing.T) {
	s := NewSystem(testNow)
	gate, done := make(chan struct{}), make(chan struct{})
	var order []string
	r := spawn(t, s, Options{Name: "a"}, fn{receive: func(m any) {
		if m == "gate" {
			<-gate
			return
		}
		order = append(order, m.(string))
		if len(order) == 3 {
			close(done)
		}
	}})
	r.Tell("gate")
	r.Tell("one")
	r.Tell("two")
	r.TellFirst("step done")
	close(gate)
	await(t, "three messages", done)
	if order[0] != "step done" {
		t.Fatalf("order %v, want the express message first", order)
	}
	<-r.Stop()
}

func TestFullRingRefusesAndCounts(t *testing.T) {
	s := NewSystem(testNow)
	gate := make(chan struct{})
	started := make(chan struct{})
	var once sync.Once
	r := spawn(t, s, Options{Name: "a", Ring: 4}, fn{receive: func(any) {
		once.Do(func() { close(started) })
		<-gate
	}})
	r.Tell(0)
	await(t, "first message", started)
	for i := range 4 {
		if !r.Tell(i) {
			t.Fatalf("message %d of 4 refused", i)
		}
	}
	if r.Tell(5) {
		t.Fatal("a fifth message was taken by a ring of 4")
	}
	if got := r.Info().Refused; got != 1 {
		t.Fatalf("refused = %d, want 1", got)
	}
	close(gate)
	<-r.StopWhenDrained()
}

func TestNoMessageVanishesWhenStopped(t *testing.T) {
	for _, how := range []struct {
		name string
		stop func(*Ref) <-chan struct{}
	}{{"stop", (*Ref).Stop}, {"poison", (*Ref).StopWhenDrained}} {
		t.Run(how.name, func(t *testing.T) {
			s := NewSystem(testNow)
			var handled, dropped, refused, sent atomic.Int64
			for round := range 50 {
				r := spawn(t, s, Options{Name: "a", Ring: 1024, OnDrop: func(any) { dropped.Add(1) }},
					fn{receive: func(any) { handled.Add(1) }})
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() {
						for i := range 200 {
							sent.Add(1)
							if !r.Tell(i) {
								refused.Add(1)
							}
						}
					})
				}
				if round%2 == 0 {
					time.Sleep(20 * time.Microsecond)
				}
				await(t, "stop", how.stop(r))
				wg.Wait()
			}
			if got := handled.Load() + dropped.Load() + refused.Load(); got != sent.Load() {
				t.Fatalf("handled %d + dropped %d + refused %d = %d, sent %d",
					handled.Load(), dropped.Load(), refused.Load(), got, sent.Load())
			}
		})
	}
}

func TestRestartKeepsTheQueueAndReportsTheMessage(t *testing.T) {
	s := NewSystem(testNow)
	var failures []Failure
	var handled atomic.Int64
	done := make(chan struct{})
	instances := 0
	r := spawn(t, s, Options{
		Name: "a", Kind: "test", Ring: 256,
		New: func(*Ref) Handler {
			instances++
			return fn{receive: func(m any) {
				if m.(int)%10 == 3 {
					panic("planted")
				}
				if handled.Add(1) == 90 {
					close(done)
				}
			}}
		},
		OnFailure: func(f Failure) Directive { failures = append(failures, f); return Restart },
	}, nil)
	for i := range 100 {
		r.Tell(i)
	}
	await(t, "the good messages", done)
	<-r.Stop()
	if len(failures) != 10 || instances != 11 {
		t.Fatalf("%d failures, %d instances, want 10 and 11", len(failures), instances)
	}
	if failures[0].Message != 3 || failures[0].Reason != "planted" || len(failures[0].Stack) == 0 {
		t.Fatalf("failure = %+v, want message 3, reason planted, a stack", failures[0])
	}
}

func TestPanicInDrainedIsAFailureWithoutMessage(t *testing.T) {
	s := NewSystem(testNow)
	failed := make(chan Failure, 1)
	var dropped atomic.Int64
	r := spawn(t, s, Options{
		Name:      "a",
		OnFailure: func(f Failure) Directive { failed <- f; return Stop },
		OnDrop:    func(any) { dropped.Add(1) },
	}, fn{receive: func(any) {}, drained: func() { panic("undecided") }})
	r.Tell(1)
	f := <-failed
	if f.Message != nil || f.Reason != "undecided" {
		t.Fatalf("failure = %+v, want no message and reason undecided", f)
	}
	await(t, "end", r.Done())
	if r.Tell(2) {
		t.Fatal("an ended actor took a message")
	}
}

func TestNilMessageIsABug(t *testing.T) {
	s := NewSystem(testNow)
	r := spawn(t, s, Options{Name: "a"}, fn{receive: func(any) {}})
	defer func() {
		if recover() == nil {
			t.Fatal("Tell(nil) did not panic")
		}
		<-r.Stop()
	}()
	r.Tell(nil)
}

func TestNameIsFreeAgainAfterTheEnd(t *testing.T) {
	s := NewSystem(testNow)
	r := spawn(t, s, Options{Name: "a"}, fn{receive: func(any) {}})
	if _, err := s.Spawn(Options{Name: "a", Ring: 4, New: func(*Ref) Handler { return fn{} }}); err == nil {
		t.Fatal("a second actor got the same name")
	}
	<-r.Stop()
	r = spawn(t, s, Options{Name: "a"}, fn{receive: func(any) {}})
	<-r.Stop()
	if n := len(s.Table()); n != 0 {
		t.Fatalf("%d actors in the table after all ended, want 0", n)
	}
}

func TestTableShowsDepthAndTheMessageInHand(t *testing.T) {
	s := NewSystem(testNow)
	gate, started := make(chan struct{}), make(chan struct{})
	r := spawn(t, s, Options{Name: "a", Kind: "k"}, fn{receive: func(m any) {
		if m == 1 {
			close(started)
			<-gate
		}
	}})
	r.Tell(1)
	await(t, "start", started)
	r.Tell(2)
	r.Tell(3)
	i := s.Table()[0]
	if i.Depth != 2 || i.Current != "int" || i.Kind != "k" || i.Posted != 3 {
		t.Fatalf("info = %+v, want depth 2, current int, kind k, posted 3", i)
	}
	close(gate)
	<-r.StopWhenDrained()
	if i := r.Info(); i.Handled != 3 || i.Wait.Count() < 3 || i.Handle.Count() < 3 {
		t.Fatalf("after the end: handled %d, waits %d, want 3", i.Handled, i.Wait.Count())
	}
}

func TestPostingAndHandlingDoNotAllocate(t *testing.T) {
	s := NewSystem(testNow)
	done := make(chan struct{}, 1)
	r := spawn(t, s, Options{Name: "a"}, fn{receive: func(any) { done <- struct{}{} }})
	m := any(new(int))
	r.Tell(m)
	<-done
	n := testing.AllocsPerRun(1000, func() {
		r.Tell(m)
		<-done
	})
	if n != 0 {
		t.Fatalf("%.1f allocations per message, want 0", n)
	}
	<-r.Stop()
}

func TestHistogramQuantilesBoundTheirSamples(t *testing.T) {
	var h Hist
	for v := range int64(1000) {
		h.record(v * 1000)
	}
	for _, q := range []float64{0, 0.5, 0.99, 1} {
		exact := int64(q*999) * 1000
		if got := h.Quantile(q); got < exact || got > exact+exact/4+1 {
			t.Errorf("quantile %.2f = %d, want within [%d, %d]", q, got, exact, exact+exact/4)
		}
	}
	h.record(1 << 50)
	if h.Max() != 1<<50 || h.Quantile(1) != 1<<50 {
		t.Errorf("max %d, quantile(1) %d, want %d", h.Max(), h.Quantile(1), int64(1)<<50)
	}
}

func BenchmarkPingPong(b *testing.B) {
	s := NewSystem(testNow)
	back := make(chan struct{}, 1)
	r, _ := s.Spawn(Options{Name: "a", Ring: 64, New: func(*Ref) Handler {
		return fn{receive: func(any) { back <- struct{}{} }}
	}})
	m := any(new(int))
	b.ReportAllocs()
	for b.Loop() {
		r.Tell(m)
		<-back
	}
	<-r.Stop()
}
