//go:build cuda

package cuda

import (
	"math"
	"testing"

	"waybill/kernels"
)

// A process that decodes steps of a millisecond has used all numbers after 25 days. The next one is then the smallest,
// not one that was used long ago: tables that were prepared, and what is queued ahead, are of the number that follows.
func TestNumbersOfStepsWrapAround(t *testing.T) {
	for _, c := range []struct{ number, gaveUp, want int32 }{
		{0, 0, 1},
		{7, 3, 8},
		{7, 7, 8}, // a step that was not queued whole
		{7, 8, 9},
		{math.MaxInt32, 0, math.MinInt32},
		{math.MaxInt32, math.MinInt32, math.MinInt32 + 1},
		{math.MinInt32, 5, math.MinInt32 + 1},
		{math.MinInt32, math.MaxInt32, math.MinInt32 + 1},
	} {
		s := steps{number: c.number, gaveUp: c.gaveUp}
		if s.advance(); s.number != c.want {
			t.Errorf("after step %d, given up %d: step %d, want %d", c.number, c.gaveUp, s.number, c.want)
		}
	}
}

// aheadBench is a backend whose steps of two rows can be queued ahead.
type aheadBench struct {
	t       *testing.T
	b       *Backend
	batch   *kernels.Batch
	forward kernels.Forward
}

func newAheadBench(t *testing.T) *aheadBench {
	t.Helper()
	b := openFor(t)
	b.steps.firstTakes = 1 // every recording has a rest
	w, x := embedding(t, b)
	logits, err := b.NewFloats(2 * 64)
	if err != nil {
		t.Fatal(err)
	}
	a := &aheadBench{t: t, b: b, batch: &kernels.Batch{
		Tokens: []int32{1, 2}, Positions: []int32{0, 0}, Slots: []int32{0, 1}, Logits: []int32{0, 1},
		Seqs: []kernels.BatchSeq{{First: 0, Len: 1, Blocks: []int32{0}}, {First: 1, Len: 1, Blocks: []int32{0}}},
	}}
	a.forward = func(batch *kernels.Batch) kernels.Buffer {
		b.Embed(x, w)
		b.MatMul(logits, x, w, nil, len(batch.Tokens))
		return logits
	}
	for range 2 {
		a.start(false)
		a.finish(nil)
	}
	return a
}

func (a *aheadBench) start(prepared bool) {
	a.t.Helper()
	var err error
	if prepared {
		err = a.b.StartPrepared(a.batch.Tokens)
	} else {
		err = a.b.Start(a.batch, a.forward)
	}
	if err != nil {
		a.t.Fatal(err)
	}
}

// finish ends a step. The first look calls meanwhile.
func (a *aheadBench) finish(meanwhile func()) {
	a.t.Helper()
	looks := 0
	out := make([]kernels.Picked, len(a.batch.Logits))
	if _, err := a.b.Finish(out, func(bool) {
		if looks++; looks == 1 && meanwhile != nil {
			meanwhile()
		}
	}); err != nil {
		a.t.Fatal(err)
	}
	for i, p := range out {
		if p.Token != 0 || !p.Finite { // all logits are equal
			a.t.Fatalf("row %d: %+v", i, p)
		}
	}
}

func TestPreparedStepsGoOnWhenNumbersWrapAround(t *testing.T) {
	a := newAheadBench(t)
	for _, gaveUp := range []int32{0, 1} { // either half of the tables would be the wrong one
		a.b.steps.number, a.b.steps.gaveUp = math.MaxInt32-4, gaveUp
		a.start(false)
		for range 8 {
			ready := false
			// The step may end before the first look.
			a.finish(func() {
				ready = a.b.Prepare(a.batch)
				a.b.QueueAhead()
			})
			a.start(ready)
		}
		a.finish(nil)
		if n := a.b.steps.number; n != math.MinInt32+4 {
			t.Errorf("the last step is %d, want %d", n, math.MinInt32+4)
		}
	}
}

// The number and the half of a beginning that was given up are not used again in the step that runs.
func TestNothingIsPreparedOverWhatWasGivenUp(t *testing.T) {
	a := newAheadBench(t)
	tried := 0
	for range 100 {
		a.start(false)
		a.finish(func() {
			if !a.b.Prepare(a.batch) {
				return
			}
			a.b.QueueAhead()
			a.b.GiveUp()
			if tried++; a.b.Prepare(a.batch) {
				t.Error("a step was prepared where one was given up")
			}
		})
	}
	if tried == 0 {
		t.Error("nothing was given up")
	}
}

// What is given up reads its half of the tables in its own time, so ops outside of steps write the other.
func TestOpsOutsideOfStepsLeaveTablesThatWereGivenUp(t *testing.T) {
	a := newAheadBench(t)
	tried := 0
	for range 100 {
		a.start(false)
		a.finish(func() {
			if a.b.Prepare(a.batch) {
				a.b.QueueAhead()
			}
		})
		if a.b.steps.ahead == nil {
			continue
		}
		tried++
		half := &a.b.tables.halves[a.b.steps.aheadOf&1][0]
		a.b.Begin(a.batch)
		if &a.b.tables.host[0] == half {
			t.Error("the tables that were given up were written")
		}
		a.forward(a.batch)
		if err := a.b.End(); err != nil {
			t.Fatal(err)
		}
	}
	if tried == 0 {
		t.Error("nothing was queued ahead")
	}
}
