package waybill

import (
	"math"
	"strconv"
)

// notReached marks a part that has no value.
const notReached = math.MinInt64

// Split is a waybill cut into parts, in whole microseconds. A part that was not
// reached is absent (Has reports false), never zero.
type Split struct {
	parts [NumParts]int64
	// Reason is how the sequence ended.
	Reason Reason
}

// Part names a difference of milestones.
type Part int

// The parts of a request's time, in the order of the dump line.
const (
	Intake   Part = iota // arrived → queued
	Queue                // queued → scheduled
	Prefill              // scheduled → first token
	Decode               // first token → last token
	E2E                  // arrived → last byte
	Egress               // first token → first byte
	TTFT                 // arrived → first byte
	Tail                 // last token → last byte
	Wait                 // tokenized → scheduled; this and what follows lies within those above
	Receive              // arrived → received
	Decoding             // received → decoded
	Reserve              // decoded → reserved
	Render               // reserved → rendered
	Tokenize             // rendered → tokenized
	Hop                  // tokenized → queued
	// NumParts is the number of parts.
	NumParts
)

var partNames = [NumParts]string{
	"intake", "queued", "prefill", "decode", "e2e", "egress", "ttft", "tail", "wait",
	"receive", "decode_json", "reserve", "render", "tokenize", "hop",
}

// partEnds are the milestones between which each part lies: the cut of the dump line,
// metrics, timings and traces. The console's waterfall has finer stretches.
var partEnds = [NumParts]struct{ from, to Milestone }{
	Intake: {Arrived, Queued}, Queue: {Queued, Scheduled}, Prefill: {Scheduled, FirstToken}, Decode: {FirstToken, LastToken},
	E2E: {Arrived, LastByte}, Egress: {FirstToken, FirstByte}, TTFT: {Arrived, FirstByte}, Tail: {LastToken, LastByte}, Wait: {Tokenized, Scheduled},
	Receive: {Arrived, Received}, Decoding: {Received, Decoded}, Reserve: {Decoded, Reserved}, Render: {Reserved, Rendered},
	Tokenize: {Rendered, Tokenized}, Hop: {Tokenized, Queued},
}

// Ends returns the milestones that p lies between.
func (p Part) Ends() (from, to Milestone) { return partEnds[p].from, partEnds[p].to }

// String returns the part's name as it stands in the dump line and in metrics.
func (p Part) String() string { return partNames[p] }

// Parts returns all parts in order.
func Parts() []Part {
	out := make([]Part, NumParts)
	for i := range out {
		out[i] = Part(i)
	}
	return out
}

// Has reports whether part p was reached.
func (s *Split) Has(p Part) bool { return s.parts[p] != notReached }

// Micros returns part p in microseconds; only if Has(p).
func (s *Split) Micros(p Part) int64 { return s.parts[p] }

// Seconds returns part p in seconds; only if Has(p).
func (s *Split) Seconds(p Part) float64 { return float64(s.parts[p]) / 1e6 }

// Split cuts a finished waybill. Stamps are rounded to whole microseconds before
// differences are taken, so sums of parts are exact:
//
//	ttft = intake + queued + prefill + egress
//	e2e  = intake + queued + prefill + decode + tail
//
// An aborted or failed sequence is cut at Ended: the phase it ended in gets the
// rest, later ones are absent, so its e2e still is the sum of its parts.
func (w *Waybill) Split() Split {
	s := Split{Reason: w.Reason()}
	for i := range s.parts {
		s.parts[i] = notReached
	}
	at := w.micros()
	if s.Reason == Abort || s.Reason == Error || s.Reason == Running {
		w.cut(&s, at)
		return s
	}
	for p := range NumParts {
		if (p == Egress || p == TTFT) && !w.Stream {
			continue
		}
		s.between(p, at)
	}
	return s
}

// between sets a part whose milestones were both passed.
func (s *Split) between(p Part, at [NumMilestones]int64) {
	if from, to := p.Ends(); at[from] != 0 && at[to] != 0 {
		s.parts[p] = at[to] - at[from]
	}
}

// Micros returns a stamp in whole microseconds, rounded as everywhere where parts are told.
func Micros(ns int64) int64 { return (ns + 500) / 1000 }

// micros returns the stamps in whole microseconds, 0 where not reached.
func (w *Waybill) micros() (at [NumMilestones]int64) {
	for m := range at {
		if ns := w.At(Milestone(m)); ns != 0 {
			at[m] = max(Micros(ns), 1)
		}
	}
	return at
}

// cut fills the parts of a sequence that did not reach its ordinary end.
func (w *Waybill) cut(s *Split, at [NumMilestones]int64) {
	end := at[Ended]
	if end == 0 || at[Arrived] == 0 {
		return
	}
	s.parts[E2E] = end - at[Arrived]
	from := at[Arrived]
	for p := Intake; p <= Decode; p++ {
		_, to := p.Ends()
		if p != Decode && at[to] != 0 && at[to] <= end {
			s.parts[p] = at[to] - from
			from = at[to]
			continue
		}
		s.parts[p] = end - from
		break
	}
	if w.Stream && s.Has(Decode) && at[FirstByte] != 0 && at[FirstByte] <= end {
		s.parts[Egress] = at[FirstByte] - at[FirstToken]
		s.parts[TTFT] = at[FirstByte] - at[Arrived]
	}
	for m := range at {
		if at[m] > end {
			at[m] = 0
		}
	}
	for p := Wait; p < NumParts; p++ {
		s.between(p, at)
	}
}

// dumpParts are the parts of the dump line, in its order.
var dumpParts = [...]Part{Intake, Queue, Prefill, Decode, E2E, Egress, TTFT, Tail}

// AppendDump appends the waybill's line for VT_TTFT_DUMP=1, with its newline.
// Times are in milliseconds with three decimals; parts not reached are left out.
func (w *Waybill) AppendDump(dst []byte) []byte {
	s := w.Split()
	dst = append(dst, "TTFTSPLIT rid="...)
	dst = append(dst, w.RID...)
	for _, p := range dumpParts {
		if s.Has(p) {
			dst = append(dst, ' ')
			dst = append(dst, p.String()...)
			dst = append(dst, '=')
			dst = appendMillis(dst, s.parts[p])
		}
	}
	count := func(name string, n int64) {
		dst = append(dst, ' ')
		dst = append(dst, name...)
		dst = append(dst, '=')
		dst = strconv.AppendInt(dst, n, 10)
	}
	count("prompt", w.PromptTokens.Load())
	count("cached", w.CachedTokens.Load())
	count("out", w.OutputTokens.Load())
	count("steps_waited", w.StepsWaited.Load())
	if k := w.KernelNs.Load(); k >= 0 {
		dst = append(dst, " kernel="...)
		dst = appendMillis(dst, (k+500)/1000)
	}
	dst = append(dst, " reason="...)
	dst = append(dst, s.Reason.String()...)
	return append(dst, '\n')
}

// appendMillis appends us microseconds as milliseconds with three decimals.
func appendMillis(dst []byte, us int64) []byte {
	if us < 0 {
		dst = append(dst, '-')
		us = -us
	}
	dst = strconv.AppendInt(dst, us/1000, 10)
	f := us % 1000
	return append(dst, '.', byte('0'+f/100), byte('0'+f/10%10), byte('0'+f%10))
}
