//go:build cuda

package cuda

import (
	"math"
	"slices"
	"testing"
	"time"
	"unsafe"

	"waybill/kernels"
)

// A process that decodes steps of a millisecond has used all numbers after 25 days. The next one is then the smallest,
// not one that was used long ago: tables that were prepared, and what is queued ahead, are of the number that follows.
func TestHostNumbersOfStepsWrapAround(t *testing.T) {
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

// A step behind one that was given up runs later than it was launched: were that taken for its length, the next one would
// end before anything is queued behind it.
func TestHostGivenUpIsNotTakenForLength(t *testing.T) {
	for _, c := range []struct {
		gaveUp  int32
		measure bool
	}{{7, false}, {6, true}, {0, true}} {
		var report [reportRows + 1]uint64
		for i := range report {
			report[i] = 8 << 32
		}
		var drawn [maxDraws][4]int32
		b := &Backend{unset: func() {}}
		b.draws.drawn = unsafe.Pointer(&drawn)
		s := &b.steps
		s.report, s.number, s.gaveUp = unsafe.Pointer(&report), 8, c.gaveUp
		const was = 3 * time.Millisecond
		s.running, s.launched = &recorded{took: was}, time.Now().Add(-time.Second)
		if _, err := b.Finish(make([]kernels.Picked, 1), nil); err != nil {
			t.Fatal(err)
		}
		if got := s.running.took; (got >= time.Second) != c.measure || !c.measure && got != was {
			t.Errorf("step 8, with %d given up: took %v, measured: %t", c.gaveUp, got, c.measure)
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
	b, w, x, logits := embedding(t, Options{FirstTakes: 1}) // every recording has a rest
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

func TestStepsGoOnWhenNumbersWrapAround(t *testing.T) {
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

// hostBench is what Prepare and GiveUp need of a backend: they call no driver.
func hostBench(rows int) *Backend {
	b := &Backend{}
	for i := range b.tables.halves {
		b.tables.halves[i] = make([]int32, 1<<12)
	}
	b.tables.sms, b.tables.kvHeads, b.tables.blockSize = 132, 8, 16
	b.steps.recorded = map[recording]*recorded{{rows: rows}: {key: recording{rows: rows}}}
	return b
}

// longRows returns a batch of n rows of one token behind 1000 others.
func longRows(n int) *kernels.Batch {
	batch := &kernels.Batch{}
	for i := range n {
		batch.Tokens, batch.Positions, batch.Slots = append(batch.Tokens, 7), append(batch.Positions, 1000), append(batch.Slots, int32(1000+i))
		batch.Logits = append(batch.Logits, int32(i))
		batch.Seqs = append(batch.Seqs, kernels.BatchSeq{First: i, Len: 1, Context: 1000, Blocks: make([]int32, 63)})
	}
	return batch
}

// The number and the half of a beginning that was given up are not used again in the step that runs, nor the half in
// the next.
func TestHostPreparesNothingOverWhatWasGivenUp(t *testing.T) {
	b := hostBench(4)
	s := &b.steps
	s.number = 6
	if !b.Prepare(longRows(3)) {
		t.Fatal("the step is not prepared")
	}
	s.ahead, s.aheadOf = s.ready, s.number+1 // as QueueAhead does
	b.GiveUp()
	if b.Prepare(longRows(3)) {
		t.Error("a step was prepared where one was given up")
	}
	s.advance()
	if s.number != 8 {
		t.Errorf("behind step 6, with 7 given up, comes %d", s.number)
	}
	if b.Prepare(longRows(3)) {
		t.Error("a step was prepared in the half that was given up before")
	}
	if s.advance(); !b.Prepare(longRows(3)) || s.number != 9 {
		t.Errorf("step %d does not prepare the next", s.number)
	}
}

// Rows of a beginning that is given up store nothing and look at nothing, and what else is in its tables stays whole.
func TestHostGivenUpStoresNothing(t *testing.T) {
	b := hostBench(4)
	s, h := &b.steps, &b.tables
	s.number = 6
	if !b.Prepare(longRows(3)) {
		t.Fatal("the step is not prepared")
	}
	words := h.words
	s.ahead, s.aheadOf = s.ready, s.number+1
	// What was asked for in the meantime has other tables.
	h.turn(s.number)
	h.layout(tableShape{tokens: 9, seqs: 1, logits: 1})
	other := append([]int32(nil), h.host...)
	b.GiveUp()
	h.turn(7)
	h.layout(recording{rows: 4}.shape())
	for i := range 4 {
		if slot, at := h.host[h.slotAt+i], h.host[h.positionAt+i]; slot != -1 || at != 0 {
			t.Errorf("row %d has slot %d, position %d", i, slot, at)
		}
	}
	if h.host[wordPieces] != 0 || h.host[wordGate] != 1 || h.host[wordCount] != int32(words) {
		t.Errorf("%d pieces, gate %d, %d words: want none, 1, %d", h.host[wordPieces], h.host[wordGate], h.host[wordCount], words)
	}
	if h.host[h.tokenAt] != 7 || s.ahead != nil || s.ready != nil {
		t.Errorf("token %d, ahead %v, ready %v", h.host[h.tokenAt], s.ahead, s.ready)
	}
	if !slices.Equal(h.halves[0], other) {
		t.Error("the running step's tables were written")
	}
}

// What is given up reads its half of the tables in its own time, so ops outside of steps write the other.
func TestStepsGivenUpAreLeftAloneByOps(t *testing.T) {
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
