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

// firstLaunches is how many launches of this package's kernels a recording's first graph
// has. They take the device 60 µs or more, the second launch the host 3 to 25. The fewer,
// the sooner the device begins: a launch takes the longer the more kernels there are. In
// between, no kernel begins before the one ahead has ended: 1.1 µs a step.
const firstLaunches = 16

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
	rows  int
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
func (b *Backend) record(rows int, batch *kernels.Batch, forward kernels.Forward) (*recorded, error) {
	r := &recorded{rows: rows}
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
	s.uncut = firstLaunches
	b.issue(batch, forward)
	graphs, err := s.capture.End(b.err)
	s.capture = nil
	return graphs, err
}

// cut ends the first graph of a recording, if it has enough launches, and reports
// whether it did.
func (b *Backend) cut() bool {
	s := &b.steps
	if s.capture == nil {
		return false
	}
	s.uncut--
	if s.uncut != -1 {
		return false
	}
	b.fail("record", s.capture.Cut())
	return true
}

// replay queues a recorded step.
func (b *Backend) replay(r *recorded) {
	s := &b.steps
	b.fail("graph", r.first[s.number&1].Launch(r.rest, b.stream))
	s.running, s.launched = r, time.Now()
}

// Prepare writes the tables of the step that may come next. Those of the running step
// are in the other half.
func (b *Backend) Prepare(batch *kernels.Batch) bool {
	s := &b.steps
	s.ready = nil
	rows, ok := bucketOf(batch)
	if !ok {
		return false
	}
	s.next.of(batch)
	key := recording{rows: rows, draws: len(s.next.rows) > 0}
	if s.recorded[key] == nil {
		return false
	}
	s.ready, s.readyRows = s.recorded[key], len(batch.Logits)
	b.tables.turn(s.number + 1)
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
