// Package waybill is the ledger that travels with a sequence: every actor stamps
// it, so each millisecond of a request's time to first token has a name and an
// owner. The package is a leaf: it imports nothing of the engine.
package waybill

import (
	"sync/atomic"
	"time"
)

// start is the origin of the process's clock.
var start = time.Now()

// Now returns nanoseconds of the process's monotonic clock, always above 0, so
// that a zero stamp means "not reached".
func Now() int64 { return int64(time.Since(start)) + 1 }

// Wall converts a stamp to wall-clock time.
func Wall(stamp int64) time.Time { return start.Add(time.Duration(stamp - 1)) }

// Milestone names a stamp of a waybill.
type Milestone int

// The milestones in the order in which an ordinary sequence passes them. 14–16
// keep no order among themselves. docs/ARCHITECTURE.md says which function stamps which.
const (
	Arrived    Milestone = iota // first byte of the request read
	Received                    // headers and body complete
	Decoded                     // JSON decoded and validated
	Reserved                    // places taken
	Rendered                    // chat template applied
	Tokenized                   // token ids ready, prefix hashed
	Queued                      // Admit taken from the Scheduler's mailbox
	Scheduled                   // first plan that holds it is bound
	Launched                    // host time just before that launch
	FirstToken                  // first sampled token is on the host
	FirstText                   // first text that may be shown, or the finish
	FirstByte                   // the write that carries it returned
	LastToken                   // step time of the last kept token
	LastByte                    // the write that carries the end returned
	HungUp                      // peer seen gone
	Ended                       // end won
	Released                    // blocks and place back
	// NumMilestones is the number of milestones.
	NumMilestones
)

var milestoneNames = [NumMilestones]string{
	"arrived", "received", "decoded", "reserved", "rendered", "tokenized", "queued",
	"scheduled", "launched", "first_token", "first_text", "first_byte", "last_token",
	"last_byte", "hung_up", "ended", "released",
}

// String returns the milestone's name in snake case.
func (m Milestone) String() string {
	if m >= 0 && m < NumMilestones {
		return milestoneNames[m]
	}
	return "unknown"
}

// Reason says how a sequence ended.
type Reason int32

// A sequence ends exactly once, for one of these reasons.
const (
	Running Reason = iota
	Stop           // end-of-sequence, stop token or stop string
	Length         // max_tokens or the context's end
	Abort          // the client went away or was too slow
	Error          // the engine failed, or the server's shutdown cut it off
)

// String returns the reason as it stands in finish_reason and in metrics.
func (r Reason) String() string {
	return [...]string{"running", "stop", "length", "abort", "error"}[r]
}

// Waybill is the ledger of one sequence. Each stamp and counter has one writer
// and is set once (counters: by one goroutine); any goroutine may read. It is
// never pooled while anyone may hold it.
type Waybill struct {
	// RID is the request id as printed, with "/<i>" if the request has several
	// sequences. Set before the waybill is shared.
	RID string
	// Stream reports whether the answer is streamed. Set before sharing.
	Stream bool

	stamps [NumMilestones]atomic.Int64

	// PromptTokens is set by Intake.
	PromptTokens atomic.Int64
	// CachedTokens are prompt tokens found in the prefix cache, counted once, at
	// the first scheduling. Written by the Scheduler.
	CachedTokens atomic.Int64
	// OutputTokens are tokens kept. Written by the Detokenizer.
	OutputTokens atomic.Int64
	// PrefillChunks is the number of steps that computed prompt tokens;
	// Preemptions and PreemptedNs count times it lost its blocks and the time
	// from each loss to its next step; StepsWaited counts the steps that ended
	// between queued and scheduled. Written by the Scheduler.
	PrefillChunks, Preemptions, PreemptedNs, StepsWaited atomic.Int64
	// WaitStepNs is the length of the longest step that its wait (tokenized to
	// scheduled) overlaps, 0 if none. Written by the Scheduler.
	WaitStepNs atomic.Int64
	// KernelNs is the time from the kernel's receipt of the first bytes to the
	// read that returned them; -1 if not known. Written by the connection.
	KernelNs atomic.Int64

	lostAt   int64 // when it was preempted, Scheduler only
	episodes episodes

	end  atomic.Int32
	done atomic.Int32
}

// Stamp sets a milestone unless it is set already.
func (w *Waybill) Stamp(m Milestone, at int64) {
	if Observing {
		w.stamps[m].CompareAndSwap(0, at)
	}
}

// At returns the stamp of m, or 0 if it was not reached.
func (w *Waybill) At(m Milestone) int64 { return w.stamps[m].Load() }

// CopyIntake copies the milestones that all sequences of a request share.
func (w *Waybill) CopyIntake(from *Waybill) {
	for m := Arrived; m <= Reserved; m++ {
		if at := from.At(m); at != 0 {
			w.Stamp(m, at)
		}
	}
	w.KernelNs.Store(from.KernelNs.Load())
}

// WaitSteps returns the wait (tokenized → scheduled) in units of the longest step
// that it overlaps; false if it was not scheduled or overlapped no step.
func (w *Waybill) WaitSteps() (steps float64, ok bool) {
	tok, sched, step := w.At(Tokenized), w.At(Scheduled), w.WaitStepNs.Load()
	if tok == 0 || sched == 0 || step == 0 {
		return 0, false
	}
	return float64(sched-tok) / float64(step), true
}

// Preempted notes that the sequence lost its blocks. Scheduler only.
func (w *Waybill) Preempted(at int64) {
	w.Preemptions.Add(1)
	w.lostAt = at
}

// Resumed notes that a preempted sequence is computed again. Scheduler only.
func (w *Waybill) Resumed(at int64) {
	w.PreemptedNs.Add(at - w.lostAt)
	w.episodes.add(Episode{Kind: Preemption, From: w.lostAt, To: at})
}

// End sets the reason for the sequence's end and reports whether this call won.
// The winner stamps Ended and owns the news.
func (w *Waybill) End(r Reason, at int64) bool {
	if !w.end.CompareAndSwap(0, int32(r)) {
		return false
	}
	w.Stamp(Ended, at)
	return true
}

// Reason returns how the sequence ended, or Running.
func (w *Waybill) Reason() Reason { return Reason(w.end.Load()) }

// The two sides that must be done before a waybill goes to the Ledger.
const (
	ResponseSide int32 = 1 << iota // the connection is idle or closed again
	EngineSide                     // Released was stamped
	bothSides    = ResponseSide | EngineSide
)

// Finish marks one side as done and reports whether the waybill is now complete.
// It reports true exactly once.
func (w *Waybill) Finish(side int32) bool {
	old := w.done.Or(side)
	return old != bothSides && old|side == bothSides
}
