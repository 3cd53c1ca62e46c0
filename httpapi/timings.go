package httpapi

import (
	"strconv"

	"waybill/actors/waybill"
)

// span is a named difference of two milestones.
type span struct {
	name     string
	from, to waybill.Milestone
}

// The spans of an answer's timings. Neighbours share a milestone, so those up to
// finish add up to the total of a collected answer.
var (
	intakeSpan  = span{"intake", waybill.Arrived, waybill.Queued}
	queuedSpan  = span{"queued", waybill.Queued, waybill.Scheduled}
	prefillSpan = span{"prefill", waybill.Scheduled, waybill.FirstToken}
	decodeSpan  = span{"decode", waybill.FirstToken, waybill.LastToken}
	egressSpan  = span{"egress", waybill.FirstToken, waybill.FirstByte}
	ttftSpan    = span{"ttft", waybill.Arrived, waybill.FirstByte}
)

// micros returns a stamp in whole microseconds, rounded as in the dump line.
func micros(ns int64) int64 { return (ns + 500) / 1000 }

// length returns a span in microseconds; ok is false if an end is missing.
func (s span) length(b *waybill.Waybill) (us int64, ok bool) {
	from, to := b.At(s.from), b.At(s.to)
	return micros(to) - micros(from), from != 0 && to != 0
}

// appendMillis appends us microseconds as milliseconds.
func appendMillis(dst []byte, us int64) []byte {
	return strconv.AppendFloat(dst, float64(us)/1000, 'f', 3, 64)
}

// timingsOf returns the timings object of a finished sequence: milliseconds. The
// write that carries it is not over yet, so it has neither tail nor e2e; egress
// and ttft are there if the first byte left before.
func timingsOf(b *waybill.Waybill) []byte {
	dst := append([]byte(nil), '{')
	for _, s := range [...]span{intakeSpan, queuedSpan, prefillSpan, decodeSpan, egressSpan, ttftSpan} {
		if us, ok := s.length(b); ok {
			dst = append(dst, '"')
			dst = append(dst, s.name...)
			dst = append(dst, `_ms":`...)
			dst = appendMillis(dst, us)
			dst = append(dst, ',')
		}
	}
	for _, c := range [...]struct {
		name string
		n    int64
	}{{"prompt_n", b.PromptTokens.Load()}, {"cached_n", b.CachedTokens.Load()}, {"predicted_n", b.OutputTokens.Load()}} {
		dst = append(dst, '"')
		dst = append(dst, c.name...)
		dst = append(dst, `":`...)
		dst = strconv.AppendInt(dst, c.n, 10)
		dst = append(dst, ',')
	}
	dst[len(dst)-1] = '}'
	return dst
}

// appendTimings appends the member timings behind others.
func appendTimings(dst []byte, b *waybill.Waybill) []byte {
	dst = append(dst, `,"timings":`...)
	return append(dst, timingsOf(b)...)
}

// serverTiming returns the header of a collected answer that is about to be
// written at now. Its parts add up to the total.
func serverTiming(b *waybill.Waybill, now int64) string {
	var dst []byte
	for _, s := range [...]span{intakeSpan, queuedSpan, prefillSpan, decodeSpan} {
		if us, ok := s.length(b); ok {
			dst = append(dst, s.name...)
			dst = append(dst, ";dur="...)
			dst = appendMillis(dst, us)
			dst = append(dst, ", "...)
		}
	}
	dst = append(dst, "finish;dur="...)
	dst = appendMillis(dst, micros(now)-micros(b.At(waybill.LastToken)))
	dst = append(dst, ", total;dur="...)
	return string(appendMillis(dst, micros(now)-micros(b.At(waybill.Arrived))))
}
