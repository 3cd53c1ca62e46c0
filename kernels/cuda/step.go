//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"gorgonia.org/cu"

	"waybill/kernels"
	"waybill/kernels/cuda/driver"
)

// maxGraphRows is the largest recorded step.
const maxGraphRows = 256

// buckets are the row counts of recorded steps. A step takes the next larger one;
// up to 32 rows a product costs the same, so few are needed there.
var buckets = []int{1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256}

// maxPicked bounds the rows of logits of a step.
const maxPicked = 1 << 14

// Offsets in the pinned memory through which a step reports, in bytes.
const (
	reportFlag  = 0  // int32: number of the last finished step
	reportTimes = 64 // 2 uint64: device times in ns
	reportPicks = 128
	reportBytes = reportPicks + 8*maxPicked
)

// sumSlots is how many norms' sums are kept: one is written, one read, one cleared.
const sumSlots = 3

// queryAfter is the interval at which Finish asks the driver whether the step died.
const queryAfter = 5 * time.Millisecond

// steps is the state of Start and Finish.
type steps struct {
	report                      unsafe.Pointer
	started, best, bad, arrived cu.DevicePtr
	number                      int32
	logits                      *buffer
	rows, vocab                 int
	// product and turn wait for the op after them.
	product product
	turn    turn
	// sums holds sums of squares of rows, in turns for one norm after another; norms
	// counts those of the running step.
	sums  cu.DevicePtr
	norms int
	// replayed is the bucket of the running step, 0 if it is none.
	replayed int
	graphs   map[recording]*driver.Graph
	warm     map[recording]bool
	padded   kernels.Batch
}

// recording names a recorded step: its rows, and whether any of their tokens is drawn.
type recording struct {
	rows  int
	draws bool
}

// openSteps makes the memory.
func (b *Backend) openSteps() (err error) {
	s := &b.steps
	if s.report, err = b.allocPinned(reportBytes); err != nil {
		return err
	}
	clear(unsafe.Slice((*byte)(s.report), reportBytes))
	if s.sums, err = b.alloc(int64(sumSlots * maxStreamRows * 8)); err != nil {
		return err
	}
	zeroed := int64(12*maxPicked + 64)
	p, err := b.alloc(zeroed)
	if err != nil {
		return err
	}
	if err := cu.MemsetD8Async(p, 0, zeroed, b.stream); err != nil {
		return err
	}
	s.best, s.bad = p, p+8*maxPicked
	s.arrived, s.started = p+12*maxPicked, p+12*maxPicked+16
	if err := b.openTables(); err != nil {
		return err
	}
	return b.stream.Synchronize()
}

// closeSteps frees the recordings.
func (b *Backend) closeSteps() error {
	var errs []error
	for _, g := range b.steps.graphs {
		errs = append(errs, g.Close())
	}
	b.steps.graphs, b.steps.warm = map[recording]*driver.Graph{}, map[recording]bool{}
	return errors.Join(errs...)
}

// Sizes returns the row counts that steps are recorded for.
func (b *Backend) Sizes() []int { return slices.Clone(buckets) }

// Start queues a step. Steps of one token per sequence are replayed; the first of a
// size runs as it is, which loads the code, and the second is recorded.
func (b *Backend) Start(batch *kernels.Batch, forward kernels.Forward) error {
	leave, err := b.enter()
	if err != nil {
		return err
	}
	b.unset = leave
	s := &b.steps
	s.number++
	s.rows = len(batch.Logits)
	if s.rows > maxPicked {
		panic(bug("%d rows of logits, at most %d", s.rows, maxPicked))
	}
	b.chooseDraws(batch)
	if err := b.fault("step"); errors.Is(err, ErrStray) {
		b.args.Reset().Ptr(s.best).Ptr(4096).Ptr(s.best).Int(8)
		b.launch("stray", b.fn.copyRows, [3]int{1, 1, 1}, 32, 0, &b.args)
	} else {
		b.fail("step", err)
	}
	if b.err == nil {
		b.queue(batch, forward)
	}
	if b.err != nil {
		return b.abandon()
	}
	return nil
}

// queue runs, records or replays a step.
func (b *Backend) queue(batch *kernels.Batch, forward kernels.Forward) {
	s := &b.steps
	rows, ok := bucketOf(batch)
	if !ok {
		b.batch, s.replayed = batch, 0
		b.tables.layout(b.shapeOf(batch))
		b.prepare(batch)
		b.issue(batch, forward)
		return
	}
	key := recording{rows: rows, draws: len(b.draws.rows) > 0}
	shape := tableShape{tokens: rows, seqs: rows, logits: rows, decode: rows}
	if key.draws {
		shape.draws = rows
	}
	b.tables.layout(shape)
	b.prepare(batch)
	s.replayed = rows
	if g := s.graphs[key]; g != nil {
		b.fail("graph", g.Launch(b.stream))
		return
	}
	b.batch = s.pad(batch, rows)
	if !s.warm[key] || b.options.Sync {
		s.warm[key] = true
		b.issue(b.batch, forward)
		return
	}
	g, err := driver.Record(b.stream, func() error {
		b.issue(b.batch, forward)
		return b.err
	})
	if err != nil {
		b.fail("record", err)
		return
	}
	s.graphs[key] = g
	b.fail("graph", g.Launch(b.stream))
}

// abandon gives a step up that could not be queued whole, waits for the part that was,
// and returns its error. An error of the device is the graver one.
func (b *Backend) abandon() error {
	err := b.err
	b.err, b.batch = nil, nil
	b.steps.product.waiting, b.steps.turn.waiting = false, false
	if e := b.stream.Synchronize(); e != nil {
		err = fmt.Errorf("cuda: step: %w, after: %v", b.named(e), err)
	} else if e := b.exception(); e != nil {
		err = fmt.Errorf("cuda: step: %w, after: %v", e, err)
	}
	b.unset()
	return err
}

// prepare writes the step's tables.
func (b *Backend) prepare(batch *kernels.Batch) {
	b.attn.planned = false
	b.tables.fill(batch, &b.draws)
	b.tables.host[wordStep] = b.steps.number
}

// issue queues the ops of a step and what reports its end.
func (b *Backend) issue(batch *kernels.Batch, forward kernels.Forward) {
	b.queueTables()
	out := forward(batch)
	b.flush()
	s, n := &b.steps, len(batch.Logits)
	report := cu.DevicePtr(uintptr(s.report))
	step := b.tables.at(wordStep)
	if n == 0 {
		b.args.Reset().Ptr(report + reportTimes).Ptr(s.started).Ptr(report + reportFlag).Ptr(step)
		b.launch("done", b.fn.done, [3]int{1, 1, 1}, 1, 0, &b.args)
		return
	}
	s.logits = out.(*buffer)
	if s.logits.float == 0 {
		panic(bug("logits that are not float32"))
	}
	s.vocab = s.logits.cols
	if b.tables.draws > 0 {
		b.queueDraws()
	}
	// A row's slices keep the device busy when rows are few.
	slices := max(1, min(16, 2*b.sms/n))
	b.args.Reset().Ptr(s.logits.float).Int(s.vocab).Ptr(s.best).Ptr(s.bad).Ptr(s.arrived).Ptr(report + reportPicks).
		Ptr(report + reportTimes).Ptr(s.started).Ptr(report + reportFlag).Ptr(step)
	b.launch("pick", b.fn.pick, [3]int{n, slices, 1}, 1024, 0, &b.args)
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

// Finish polls until the step is done and fills in out.
func (b *Backend) Finish(out []kernels.Picked) (kernels.StepTime, error) {
	defer b.unset()
	s := &b.steps
	flag := (*int32)(unsafe.Add(s.report, reportFlag))
	asked := time.Now()
	for i := 1; atomic.LoadInt32(flag) != s.number; i++ {
		if i%4096 != 0 || time.Since(asked) < queryAfter {
			continue
		}
		asked = time.Now()
		if err := b.stream.Query(); err != nil && err != cu.NotReady {
			return kernels.StepTime{}, s.failed(b.named(err))
		} else if err == nil && atomic.LoadInt32(flag) != s.number && b.exception() == nil {
			return kernels.StepTime{}, s.failed(errors.New("it ended without a report"))
		}
		if err := b.exception(); err != nil {
			return kernels.StepTime{}, s.failed(err)
		}
	}
	if err := b.exception(); err != nil {
		return kernels.StepTime{}, s.failed(err)
	}
	picks := unsafe.Slice((*[2]int32)(unsafe.Add(s.report, reportPicks)), len(out))
	for i := range out {
		out[i] = kernels.Picked{Token: picks[i][0], Finite: picks[i][1] != 0}
	}
	b.readDraws(out)
	times := (*[2]uint64)(unsafe.Add(s.report, reportTimes))
	b.batch, b.err = nil, nil
	return kernels.StepTime{Started: time.Duration(times[0]), Ended: time.Duration(times[1])}, nil
}

// failed is the error of a step that the device did not finish.
func (s *steps) failed(err error) error {
	return fmt.Errorf("cuda: step %d of %d rows, recorded as %d: %w", s.number, s.rows, s.replayed, err)
}

// ReadLogits copies a row of the last step's logits to the host.
func (b *Backend) ReadLogits(dst []float32, row int) error {
	leave, err := b.enter()
	if err != nil {
		return err
	}
	defer leave()
	s := &b.steps
	if row < 0 || row >= s.rows || len(dst) != s.vocab {
		panic(bug("row %d of %d, %d of %d logits", row, s.rows, len(dst), s.vocab))
	}
	from := s.logits.float + cu.DevicePtr(int64(row)*int64(s.vocab)*4)
	if err := cu.MemcpyDtoH(unsafe.Pointer(&dst[0]), from, int64(s.vocab)*4); err != nil {
		return fmt.Errorf("cuda: read logits: %w", err)
	}
	return nil
}
