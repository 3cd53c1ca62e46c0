package waybill

import (
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// passed returns a waybill that has passed all milestones up to last at random
// times, and has ended for reason r.
func passed(rng *rand.Rand, stream bool, last Milestone, r Reason) *Waybill {
	w := &Waybill{RID: "r-1", Stream: stream}
	w.KernelNs.Store(-1)
	at := 1 + rng.Int64N(1e9)
	for m := Arrived; m <= last; m++ {
		w.Stamp(m, at)
		at += rng.Int64N(50e6)
	}
	w.End(r, at)
	return w
}

// sum adds the parts, which must all be there.
func sum(t *testing.T, s *Split, parts ...Part) int64 {
	t.Helper()
	var n int64
	for _, p := range parts {
		if !s.Has(p) {
			t.Fatalf("%v is missing", p)
		}
		n += s.Micros(p)
	}
	return n
}

func TestPartsAddUpToTheMicrosecond(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 10000 {
		w := passed(rng, true, LastByte, Length)
		s := w.Split()
		if got, want := sum(t, &s, Intake, Queue, Prefill, Egress), s.Micros(TTFT); got != want {
			t.Fatalf("ttft: parts %d, whole %d", got, want)
		}
		if got, want := sum(t, &s, Intake, Queue, Prefill, Decode, Tail), s.Micros(E2E); got != want {
			t.Fatalf("e2e: parts %d, whole %d", got, want)
		}
		if got, want := sum(t, &s, Receive, Decoding, Reserve, Render, Tokenize, Hop), s.Micros(Intake); got != want {
			t.Fatalf("intake: parts %d, whole %d", got, want)
		}
	}
}

func TestCollectedAnswerHasNoTTFTOfBytes(t *testing.T) {
	s := passed(rand.New(rand.NewPCG(1, 2)), false, LastByte, Stop).Split()
	if s.Has(TTFT) || s.Has(Egress) {
		t.Error("ttft or egress of an answer that is not streamed")
	}
	if !s.Has(Tail) || !s.Has(E2E) {
		t.Error("tail or e2e is missing")
	}
}

func TestCutPhaseGetsTheRestAndLaterOnesAreAbsent(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	order := []struct {
		p    Part
		last Milestone // the last milestone that is passed
	}{{Intake, Tokenized}, {Queue, Queued}, {Prefill, Launched}, {Decode, FirstByte}}
	for i, c := range order {
		for _, r := range []Reason{Abort, Error} {
			s := passed(rng, true, c.last, r).Split()
			var parts []Part
			for k := range order {
				if has := s.Has(order[k].p); has != (k <= i) {
					t.Fatalf("cut after %v: %v present: %t", c.last, order[k].p, has)
				}
				if k <= i {
					parts = append(parts, order[k].p)
				}
			}
			if got, want := sum(t, &s, parts...), s.Micros(E2E); got != want {
				t.Errorf("cut after %v: parts %d, e2e %d", c.last, got, want)
			}
			if s.Has(Tail) {
				t.Errorf("cut after %v: there is a tail", c.last)
			}
		}
	}
}

func TestEndIsWonOnce(t *testing.T) {
	w := &Waybill{}
	var won atomic.Int64
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			if w.End(Reason(1+i%4), Now()) {
				won.Add(1)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Fatalf("%d winners", won.Load())
	}
	if w.Reason() == Running || w.At(Ended) == 0 {
		t.Fatal("the winner left no reason or no stamp")
	}
}

func TestBookedOnceWhenBothSidesAreDone(t *testing.T) {
	w := &Waybill{}
	for i, c := range []struct {
		side int32
		want bool
	}{{ResponseSide, false}, {ResponseSide, false}, {EngineSide, true}, {EngineSide, false}, {ResponseSide, false}} {
		if got := w.Finish(c.side); got != c.want {
			t.Errorf("call %d: Finish(%d) = %t, want %t", i, c.side, got, c.want)
		}
	}
}

func TestStampsAreSetOnce(t *testing.T) {
	w := &Waybill{}
	w.Stamp(Queued, 5)
	w.Stamp(Queued, 9)
	if got := w.At(Queued); got != 5 {
		t.Fatalf("stamp %d, want the first one, 5", got)
	}
}

func TestDumpLine(t *testing.T) {
	w := &Waybill{RID: "abc", Stream: true}
	w.KernelNs.Store(12345)
	for m, at := range []int64{
		Arrived: 1e6, Received: 1.1e6, Decoded: 1.2e6, Reserved: 1.3e6, Rendered: 1.4e6, Tokenized: 1.5e6, Queued: 2e6,
		Scheduled: 5.0005e6, Launched: 5.1e6, FirstToken: 10e6, FirstText: 10.1e6, FirstByte: 10.25e6, LastToken: 30e6, LastByte: 30.3e6,
	} {
		w.Stamp(Milestone(m), at)
	}
	w.PromptTokens.Store(7)
	w.CachedTokens.Store(3)
	w.OutputTokens.Store(5)
	w.StepsWaited.Store(2)
	w.End(Stop, 31e6)
	want := "TTFTSPLIT rid=abc intake=1.000 queued=3.001 prefill=4.999 decode=20.000 e2e=29.300 egress=0.250 ttft=9.250 tail=0.300" +
		" prompt=7 cached=3 out=5 steps_waited=2 kernel=0.012 reason=stop\n"
	if got := string(w.AppendDump(nil)); got != want {
		t.Errorf("got  %swant %s", got, want)
	}
	aborted := &Waybill{RID: "x"}
	aborted.KernelNs.Store(-1)
	aborted.Stamp(Arrived, 1e6)
	aborted.Stamp(Queued, 2e6)
	aborted.End(Abort, 4e6)
	want = "TTFTSPLIT rid=x intake=1.000 queued=2.000 e2e=3.000 prompt=0 cached=0 out=0 steps_waited=0 reason=abort\n"
	if got := string(aborted.AppendDump(nil)); got != want {
		t.Errorf("got  %swant %s", got, want)
	}
	buf := make([]byte, 0, 512)
	if n := testing.AllocsPerRun(100, func() { buf = w.AppendDump(buf[:0]) }); n != 0 {
		t.Errorf("%.0f allocations per line, want 0", n)
	}
}

func TestNamesAreComplete(t *testing.T) {
	for m := Arrived; m < NumMilestones; m++ {
		if m.String() == "" {
			t.Errorf("milestone %d has no name", m)
		}
	}
	for _, p := range Parts() {
		if p.String() == "" || strings.Contains(p.String(), " ") {
			t.Errorf("part %d has the name %q", p, p)
		}
	}
}

func TestStampingAllocatesNothing(t *testing.T) {
	w := &Waybill{}
	if n := testing.AllocsPerRun(100, func() {
		w.Stamp(Queued, Now())
		w.OutputTokens.Add(1)
	}); n != 0 {
		t.Fatalf("%.0f allocations, want 0", n)
	}
}

func BenchmarkStamp(b *testing.B) {
	w := &Waybill{}
	b.ReportAllocs()
	for b.Loop() {
		w.Stamp(Queued, Now())
	}
}
