//go:build cuda

package cuda

import (
	"errors"
	"slices"
	"time"

	"waybill/kernels"
	"waybill/kernels/cuda/driver"
)

// maxGraphRows is the largest recorded step.
const maxGraphRows = 256

// buckets are the row counts of recorded steps. A step takes the next larger one;
// up to 32 rows a product costs the same, so few are needed there.
var buckets = []int{1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256}

// firstTakes is how long the device computes at a recording's first graph, as estimated
// from launchTime a kernel and weightRate. The host needs 3 to 40 µs of it to launch the
// second; more is lost when what was queued ahead is given up. In between, no kernel begins
// before the one ahead has ended: 1.1 µs a step.
const (
	firstTakes = 60 * time.Microsecond
	launchTime = 6 * time.Microsecond
	weightRate = 4000 // bytes/ns
	never      = time.Duration(1 << 62)
)

// soonAhead is how long before a step's likely end its caller is told that it ends soon.
// 150 µs made no difference; less might miss the end, which varies by some 10.
const soonAhead = 60 * time.Microsecond

// recording names a recorded step: its rows, and whether any of their tokens is drawn.
type recording struct {
	rows  int
	draws bool
}

// shape returns where the recording expects its tables.
func (r recording) shape() tableShape {
	s := tableShape{tokens: r.rows, seqs: r.rows, logits: r.rows, decode: r.rows}
	if r.draws {
		s.draws = r.rows
	}
	return s
}

// recorded is a step that can run again: a first graph for each half of the host's
// tables, and what follows it, nil if that is nothing.
type recorded struct {
	key   recording
	first [2]*driver.Graph
	rest  *driver.Graph
	// took is how long it ran last, seen from the host; 0: unknown.
	took time.Duration
}

func (r *recorded) close() error {
	var errs []error
	for _, g := range []*driver.Graph{r.first[0], r.first[1], r.rest} {
		if g != nil {
			errs = append(errs, g.Close())
		}
	}
	return errors.Join(errs...)
}

// Sizes returns the row counts that steps are recorded for.
func (b *Backend) Sizes() []int { return slices.Clone(buckets) }

// record records the step that issue would queue.
func (b *Backend) record(key recording, batch *kernels.Batch, forward kernels.Forward) (*recorded, error) {
	r := &recorded{key: key}
	defer b.tables.turn(b.steps.number)
	for half := range int32(2) {
		b.tables.turn(half)
		graphs, err := b.capture(batch, forward)
		if err != nil {
			return nil, errors.Join(err, r.close())
		}
		r.first[half] = graphs[0]
		if len(graphs) == 1 {
			continue
		}
		if r.rest == nil {
			r.rest = graphs[1]
		} else if err := graphs[1].Close(); err != nil {
			return nil, errors.Join(err, r.close())
		}
	}
	return r, nil
}

// capture records the ops of a step as one graph or two.
func (b *Backend) capture(batch *kernels.Batch, forward kernels.Forward) ([]*driver.Graph, error) {
	s := &b.steps
	var err error
	if s.capture, err = driver.Record(b.stream); err != nil {
		return nil, err
	}
	s.uncut = s.firstTakes
	b.issue(batch, forward)
	graphs, err := s.capture.End(b.err)
	s.capture = nil
	return graphs, err
}

// cut counts a launch. Before it, it ends the first graph of a recording that takes long
// enough, and reports whether it did.
func (b *Backend) cut() (ended bool) {
	s := &b.steps
	if s.capture == nil {
		return false
	}
	if ended = s.uncut <= 0; ended {
		b.fail("record", s.capture.Cut())
		s.uncut = never
	}
	s.uncut -= launchTime
	return ended
}

// reads counts the time for a product's weight.
func (b *Backend) reads(w *weight) { b.steps.uncut -= time.Duration(w.Bytes() / weightRate) }

// replay queues a recorded step, or lets the part of it that is queued go on and queues the
// rest.
func (b *Backend) replay(r *recorded) {
	s := &b.steps
	b.tables.open()
	s.running, s.launched = r, time.Now()
	if s.ahead != nil {
		s.ahead = nil
		b.fail("graph", r.rest.Launch(nil, b.stream))
		return
	}
	b.fail("graph", r.first[s.number&1].Launch(r.rest, b.stream))
	s.launched = time.Now()
}

// QueueAhead queues the first graph of the step that Prepare got ready, behind the running
// one. It waits at the device until its tables are complete.
func (b *Backend) QueueAhead() {
	s := &b.steps
	if s.ready == nil || s.ahead != nil || s.ready.rest == nil || s.running == nil {
		return
	}
	// After an error nothing is ahead. The next step meets it again.
	if s.ready.first[(s.number+1)&1].Launch(nil, b.stream) == nil {
		s.ahead, s.aheadOf = s.ready, s.number+1
	}
}

// GiveUp lets the graph that is queued ahead, if one is, run as a step whose rows store
// nothing. Its number is used up: the device may read its half of the tables for a while.
func (b *Backend) GiveUp() {
	s, t := &b.steps, &b.tables
	if s.ahead == nil {
		return
	}
	s.gaveUp = s.aheadOf
	t.turn(s.aheadOf)
	t.layout(s.ahead.key.shape())
	for i := range t.tokens {
		t.host[t.slotAt+i] = -1
		t.host[t.positionAt+i] = 0 // attention.cu looks at what precedes
	}
	t.host[wordPieces] = 0 // decode.cu stores the new key of every row that has one
	t.open()
	s.ahead, s.ready = nil, nil
}

// Prepare writes the tables of the step that may come next. Those of the running step
// are in the other half.
func (b *Backend) Prepare(batch *kernels.Batch) bool {
	s := &b.steps
	s.ready = nil
	switch s.gaveUp {
	case s.number - 1, s.number + 1:
		return false // the device may read that half yet
	}
	s.next.of(batch)
	key, ok := s.keyOf(batch, len(s.next.rows) > 0)
	if !ok || s.recorded[key] == nil || s.ahead != nil && s.ahead.key != key {
		return false
	}
	s.ready, s.readyRows = s.recorded[key], len(batch.Logits)
	b.tables.turn(s.number + 1)
	b.tables.host[wordGate] = 0
	b.tables.layout(key.shape())
	b.tables.fill(batch, s.next.rows)
	b.tables.host[wordStep] = s.number + 1
	return true
}

// StartPrepared starts the step that Prepare got ready.
func (b *Backend) StartPrepared(tokens []int32) error {
	s := &b.steps
	r := s.ready
	if r == nil || len(tokens) != s.readyRows {
		panic(bug("%d tokens for a prepared step of %d", len(tokens), s.readyRows))
	}
	copy(b.tables.host[b.tables.tokenAt:], tokens)
	return b.start(len(tokens), func() {
		b.draws.chosen, s.next = s.next, b.draws.chosen
		b.replay(r)
	})
}

// keyOf returns the recording that takes batch: the one that is queued ahead, if it does.
func (s *steps) keyOf(batch *kernels.Batch, draws bool) (key recording, ok bool) {
	rows, ok := bucketOf(batch)
	if s.ahead != nil && rows <= s.ahead.key.rows && draws == s.ahead.key.draws {
		rows = s.ahead.key.rows
	}
	return recording{rows: rows, draws: draws}, ok
}

// bucketOf returns the recorded size that takes batch.
func bucketOf(batch *kernels.Batch) (rows int, ok bool) {
	n := len(batch.Tokens)
	if n == 0 || n > maxGraphRows || len(batch.Seqs) != n || len(batch.Logits) != n {
		return 0, false
	}
	for i := range batch.Seqs {
		if batch.Seqs[i].Len != 1 || batch.Seqs[i].First != i || batch.Logits[i] != int32(i) {
			return 0, false
		}
	}
	i, _ := slices.BinarySearch(buckets, n)
	return buckets[i], true
}

// pad returns batch with rows that compute nothing of use and store nothing.
func (s *steps) pad(batch *kernels.Batch, rows int) *kernels.Batch {
	p := &s.padded
	p.Tokens, p.Positions = append(p.Tokens[:0], batch.Tokens...), append(p.Positions[:0], batch.Positions...)
	p.Slots, p.Logits = append(p.Slots[:0], batch.Slots...), append(p.Logits[:0], batch.Logits...)
	p.Seqs = append(p.Seqs[:0], batch.Seqs...)
	for i := len(batch.Tokens); i < rows; i++ {
		p.Tokens, p.Positions = append(p.Tokens, 0), append(p.Positions, 0)
		p.Slots, p.Logits = append(p.Slots, -1), append(p.Logits, int32(i))
		p.Seqs = append(p.Seqs, kernels.BatchSeq{First: i, Len: 1, Blocks: batch.Seqs[0].Blocks[:1]})
	}
	return p
}
