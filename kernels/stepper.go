package kernels

import (
	"errors"
	"time"
)

// ErrOutOfMemory is wrapped by the error of a step, or of making memory, for which the
// device had none left. The backend goes on: what it had done is undone.
var ErrOutOfMemory = errors.New("the device is out of memory")

// Forward issues the ops of one step over b and returns the logits of b.Logits.
type Forward func(b *Batch) Buffer

// StepTime is a step as the device's own clock saw it.
type StepTime struct {
	// Started and Ended are times of the device's clock, whose zero is its own.
	Started, Ended time.Duration
	// Launch is what the host took, by its own clock, from seeing the tokens of the step
	// before to the return of the call that launched this one, or to letting it go on if its
	// beginning was queued ahead; negative if the step was launched piece by piece.
	Launch time.Duration
}

// Meanwhile is what the caller of Finish does while a step runs: some microseconds at
// most. soon says that the step is likely to end within 100 µs: what the next step needs
// is best touched once more, since caches forget while the host polls.
type Meanwhile func(soon bool)

// Stepper is a Backend that computes steps beside its caller: Start returns when a
// step is queued, Finish when its tokens are on the host. One step at a time, on one
// goroutine that is locked to its thread.
type Stepper interface {
	Backend
	// NewFloats returns a buffer of n elements of float32, for logits and the
	// residual stream, where the backend's activations are narrower.
	NewFloats(n int) (Buffer, error)
	// NewRows returns a buffer of n elements for fused q, k, v rows, which stay float32
	// until RopeAndCache has rotated them.
	NewRows(n int) (Buffer, error)
	// Start queues a step. A batch of one token for each sequence, all of whose
	// logits are wanted in order, may be replayed from a recording: forward is then
	// called with a batch padded to a bucket, and not at every step. After an error
	// there is no step: Finish must not be called.
	Start(b *Batch, forward Forward) error
	// Prepare gets ready, while a step runs, to start b next, whose Tokens need not be
	// right yet. It reports whether it did: a step that is not replayed cannot be
	// prepared. Start, and another Prepare, undo it.
	Prepare(b *Batch) bool
	// QueueAhead queues the beginning of the step that was prepared last behind the running
	// one. There it waits for its tokens: StartPrepared, or Start of a batch that it serves
	// as well, lets it go on. Start of another batch gives it up, as GiveUp does and every
	// call that makes or frees memory: it then computes for nothing, some 60 µs, and stores
	// nothing. Without a prepared step, or where the backend cannot, it does nothing.
	QueueAhead()
	// GiveUp gives up what was queued ahead, if anything was.
	GiveUp()
	// StartPrepared is Start of the batch that was prepared last, with tokens [N] in
	// place of its own, after Finish of the step before.
	StartPrepared(tokens []int32) error
	// Finish polls until the step is done and fills in one entry for each of its
	// logits; Top is valid until the next Start. It does not yield the processor.
	// meanwhile, if not nil, is called again and again until then.
	Finish(out []Picked, meanwhile Meanwhile) (StepTime, error)
	// ReadLogits copies a row of the step's logits to the host, after Finish.
	ReadLogits(dst []float32, row int) error
	// Sizes returns the row counts that Start records steps for, for a warm-up.
	Sizes() []int
	// Memory returns the device memory that is free and that there is, in bytes.
	Memory() (free, total int64, err error)
}

// ProductLoader is a Stepper that has choices to make for each number of rows. LoadProducts makes those of all products
// so far for up to rows rows, so that no step has to; results of earlier ops are undefined afterwards.
type ProductLoader interface {
	Stepper
	LoadProducts(rows int) error
}
