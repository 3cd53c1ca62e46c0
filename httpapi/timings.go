package httpapi

import (
	"strconv"

	"waybill/actors/waybill"
)

// length returns a part in microseconds; ok is false if an end is missing.
func length(b *waybill.Waybill, p waybill.Part) (us int64, ok bool) {
	first, last := p.Ends()
	from, to := b.At(first), b.At(last)
	return waybill.Micros(to) - waybill.Micros(from), from != 0 && to != 0
}

// appendMillis appends us microseconds as milliseconds.
func appendMillis(dst []byte, us int64) []byte {
	return strconv.AppendFloat(dst, float64(us)/1000, 'f', 3, 64)
}

// timingsOf returns the timings object of a finished sequence: milliseconds, rounded as
// in the dump line. Neighbours share a milestone. The write that carries it is not over
// yet, so it has neither tail nor e2e; egress and ttft are there if the first byte left
// before.
func timingsOf(b *waybill.Waybill) []byte {
	dst := append([]byte(nil), '{')
	for _, p := range [...]waybill.Part{waybill.Intake, waybill.Queue, waybill.Prefill, waybill.Decode, waybill.Egress, waybill.TTFT} {
		if us, ok := length(b, p); ok {
			dst = append(dst, '"')
			dst = append(dst, p.String()...)
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
	for p := waybill.Intake; p <= waybill.Decode; p++ {
		if us, ok := length(b, p); ok {
			dst = append(dst, p.String()...)
			dst = append(dst, ";dur="...)
			dst = appendMillis(dst, us)
			dst = append(dst, ", "...)
		}
	}
	dst = append(dst, "finish;dur="...)
	dst = appendMillis(dst, waybill.Micros(now)-waybill.Micros(b.At(waybill.LastToken)))
	dst = append(dst, ", total;dur="...)
	return string(appendMillis(dst, waybill.Micros(now)-waybill.Micros(b.At(waybill.Arrived))))
}
