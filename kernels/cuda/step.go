//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"gorgonia.org/cu"

	"waybill/kernels"
	"waybill/kernels/cuda/driver"
)

// maxPicked bounds the rows of logits of a step.
const maxPicked = 1 << 14

// Words of the pinned memory through which a step reports, as in src/sample.cu: 8 bytes
// each, a value and above it the step's number.
const (
	reportEnded   = 0 // 2 words: the device's clock, ns
	reportStarted = 2 // likewise
	reportRows    = 4 // a word for each row of logits: its token
	reportBytes   = 8 * (reportRows + maxPicked)

	notFinite = 0xffffffff // in place of a token
)

// sumSlots is how many norms' sums are kept: one is written, one read, one cleared.
const sumSlots = 3

// queryAfter is the interval at which Finish asks the driver whether the step died.
const queryAfter = 5 * time.Millisecond

// lookEvery is how many looks at the report there are for each at anything else: some
// 0.2 µs.
const lookEvery = 64

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
	sums     cu.DevicePtr
	norms    int
	recorded map[recording]*recorded
	warm     map[recording]bool
	padded   kernels.Batch
	// capture, in the making of a recording, ends its first graph when it takes uncut more.
	capture *driver.Recording
	uncut   time.Duration
	// firstTakes is Options.FirstTakes.
	firstTakes time.Duration
	// running is the recorded step that runs since launched, nil if it is none. seen is
	// when the tokens of the step before were there.
	running        *recorded
	launched, seen time.Time
	// told is how many words of the report have come.
	told int
	// ready, if not nil, is the step that Prepare got ready, of readyRows rows, next its draws.
	ready     *recorded
	readyRows int
	next      chosen
	// ahead, if not nil, is the recording whose first graph is queued behind the running
	// step and waits for the tables of step aheadOf. The graph given up last was of step
	// gaveUp.
	ahead           *recorded
	aheadOf, gaveUp int32
}

// openSteps makes the memory.
func (b *Backend) openSteps() (err error) {
	s := &b.steps
	if s.report, err = b.allocPinned(reportBytes); err != nil {
		return err
	}
	clear(unsafe.Slice((*byte)(s.report), reportBytes))
	if s.sums, err = b.alloc(int64(sumSlots * maxWideRows * 8)); err != nil {
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
	s := &b.steps
	for _, r := range s.recorded {
		errs = append(errs, r.close())
	}
	s.recorded, s.warm = map[recording]*recorded{}, map[recording]bool{}
	return errors.Join(errs...)
}

// Start queues a step. Steps of one token per sequence are replayed; the first of a
// size runs as it is, which loads the code, and the second is recorded.
func (b *Backend) Start(batch *kernels.Batch, forward kernels.Forward) error {
	if len(batch.Logits) > maxPicked {
		panic(bug("%d rows of logits, at most %d", len(batch.Logits), maxPicked))
	}
	return b.start(len(batch.Logits), func() {
		b.draws.of(batch)
		b.queue(batch, forward)
	})
}

// start queues a step of rows of logits.
func (b *Backend) start(rows int, queue func()) error {
	leave, err := b.attach()
	if err != nil {
		return err
	}
	b.unset = leave
	s := &b.steps
	s.advance()
	s.rows, s.running, s.ready = rows, nil, nil
	b.attn.planned = false
	if err := b.fault("step"); errors.Is(err, ErrStray) {
		b.args.Reset().Ptr(s.best).Ptr(4096).Ptr(s.best).Int(8)
		b.launch("stray", b.fn.copyRows, [3]int{1, 1, 1}, 32, 0, &b.args)
	} else {
		b.fail("step", err)
	}
	if b.err == nil {
		queue()
	}
	if b.err != nil {
		return b.abandon()
	}
	return nil
}

// advance takes the next step's number. That of a step which was given up is used up.
// Numbers wrap around after some weeks of short steps.
func (s *steps) advance() {
	s.number++
	if s.number == s.gaveUp {
		s.number++
	}
}

// queue runs, records or replays a step.
func (b *Backend) queue(batch *kernels.Batch, forward kernels.Forward) {
	s := &b.steps
	key, ok := s.keyOf(batch, len(b.draws.rows) > 0)
	if s.ahead != nil && (!ok || s.ahead.key != key) {
		b.GiveUp()
		s.advance()
	}
	if !ok {
		b.batch = batch
		b.prepare(batch, b.shapeOf(batch))
		b.tables.open()
		b.issue(batch, forward)
		return
	}
	b.prepare(batch, key.shape())
	if r := s.recorded[key]; r != nil {
		b.replay(r)
		return
	}
	b.tables.open()
	b.batch = s.pad(batch, key.rows)
	if !s.warm[key] || b.options.Sync {
		s.warm[key] = true
		b.issue(b.batch, forward)
		return
	}
	r, err := b.record(key, b.batch, forward)
	if err != nil {
		b.fail("record", err)
		return
	}
	s.recorded[key] = r
	b.replay(r)
}

// abandon gives a step up that could not be queued whole, waits for the part that was,
// and returns its error. An error of the device is the graver one.
func (b *Backend) abandon() error {
	b.GiveUp()
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
func (b *Backend) prepare(batch *kernels.Batch, shape tableShape) {
	b.tables.turn(b.steps.number)
	b.tables.layout(shape)
	b.tables.fill(batch, b.draws.rows)
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
		b.args.Reset().Ptr(report).Ptr(s.started).Ptr(step)
		b.launch("done", b.fn.done, [3]int{1, 1, 1}, 1, 0, &b.args)
		return
	}
	s.logits = out.(*buffer)
	if s.logits.float == 0 {
		panic(bug("logits that are not float32"))
	}
	s.vocab = s.logits.cols
	fence := 0
	if b.tables.draws > 0 {
		b.queueDraws()
		fence = 1
	}
	// A row's slices keep the device busy when rows are few.
	slices := max(1, min(16, 2*b.sms/n))
	b.args.Reset().Ptr(s.logits.float).Int(s.vocab).Ptr(s.best).Ptr(s.bad).Ptr(s.arrived).Ptr(report).Ptr(s.started).Ptr(step).Int(fence)
	b.launch("pick", b.fn.pick, [3]int{n, slices, 1}, 1024, 0, &b.args)
}

// Finish polls until the step is done and fills in out.
func (b *Backend) Finish(out []kernels.Picked, meanwhile kernels.Meanwhile) (kernels.StepTime, error) {
	defer b.unset()
	s := &b.steps
	s.told = 0
	now := time.Now()
	asked, due := now, time.Time{}
	if r := s.running; r != nil && r.took > 2*soonAhead {
		due = s.launched.Add(r.took - soonAhead)
	}
	for i := 1; !s.complete(len(out)); i++ {
		if i%lookEvery != 0 {
			continue
		}
		if now = time.Now(); meanwhile != nil {
			soon := !due.IsZero() && now.After(due)
			if soon {
				due = time.Time{} // once
			}
			meanwhile(soon)
		}
		if now.Sub(asked) < queryAfter {
			continue
		}
		asked = now
		if err := b.stream.Query(); err != nil && err != cu.NotReady {
			return kernels.StepTime{}, s.failed(b.named(err))
		} else if err == nil && !s.complete(len(out)) && b.exception() == nil {
			return kernels.StepTime{}, s.failed(errors.New("it ended without a report"))
		}
		if err := b.exception(); err != nil {
			return kernels.StepTime{}, s.failed(err)
		}
	}
	if err := b.exception(); err != nil {
		return kernels.StepTime{}, s.failed(err)
	}
	before := s.seen
	s.seen = time.Now()
	launch := time.Duration(-1)
	if s.running != nil {
		launch = s.launched.Sub(before)
		if s.gaveUp != s.number-1 { // it may have waited for what was given up
			s.running.took = s.seen.Sub(s.launched)
		}
	}
	for i := range out {
		token := s.word(reportRows + i)
		out[i] = kernels.Picked{Token: int32(token), Finite: token != notFinite}
	}
	b.readDraws(out)
	b.batch, b.err = nil, nil
	time64 := func(word int) time.Duration {
		return time.Duration(uint64(s.word(word)) | uint64(s.word(word+1))<<32)
	}
	return kernels.StepTime{Started: time64(reportStarted), Ended: time64(reportEnded), Launch: launch}, nil
}

// complete reports whether all words of a report of rows are there.
func (s *steps) complete(rows int) bool {
	for ; s.told < reportRows+rows; s.told++ {
		if int32(atomic.LoadUint64(s.at(s.told))>>32) != s.number {
			return false
		}
	}
	return true
}

// at is a word of the report: a value, and above it the step's number.
func (s *steps) at(word int) *uint64 { return (*uint64)(unsafe.Add(s.report, 8*word)) }

// word returns a word's value.
func (s *steps) word(i int) uint32 { return uint32(atomic.LoadUint64(s.at(i))) }

// recordedRows returns the bucket of the running step, 0 if it is none.
func (s *steps) recordedRows() int {
	if s.running == nil {
		return 0
	}
	return s.running.key.rows
}

// failed is the error of a step that the device did not finish.
func (s *steps) failed(err error) error {
	return fmt.Errorf("cuda: step %d of %d rows, recorded as %d: %w", s.number, s.rows, s.recordedRows(), err)
}

// ReadLogits copies a row of the last step's logits to the host.
func (b *Backend) ReadLogits(dst []float32, row int) error {
	leave, err := b.attach()
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
