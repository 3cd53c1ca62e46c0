package actors

import (
	"context"
	"log/slog"
	"math"
	"time"

	"waybill/actors/waybill"
)

// logSequence writes the one line that every ended sequence gets. It runs on
// the Ledger's goroutine; the handler behind log must not block.
func logSequence(log *slog.Logger, s *Sequence, split *waybill.Split) {
	b := s.Bill
	attrs := make([]slog.Attr, 0, 18)
	attrs = append(attrs,
		slog.String("rid", b.RID), slog.String("reason", split.Reason.String()), slog.Bool("stream", b.Stream),
		slog.Int64("prompt_tokens", b.PromptTokens.Load()), slog.Int64("cached_tokens", b.CachedTokens.Load()),
		slog.Int64("output_tokens", b.OutputTokens.Load()),
	)
	for _, p := range [...]waybill.Part{waybill.TTFT, waybill.E2E, waybill.Intake, waybill.Queue, waybill.Prefill, waybill.Decode, waybill.Egress, waybill.Tail} {
		if split.Has(p) {
			attrs = append(attrs, slog.Float64(p.String()+"_ms", float64(split.Micros(p))/1e3))
		}
	}
	if steps, ok := b.WaitSteps(); ok && split.Has(waybill.Wait) {
		attrs = append(attrs, slog.Float64("wait_ms", float64(split.Micros(waybill.Wait))/1e3), slog.Float64("wait_steps", math.Round(steps*1e3)/1e3))
	}
	if n := b.Preemptions.Load(); n > 0 {
		attrs = append(attrs, slog.Int64("preemptions", n), slog.Duration("preempted", time.Duration(b.PreemptedNs.Load())))
	}
	if f := s.failure.Load(); f != nil {
		attrs = append(attrs, slog.String("error", f.Message))
	}
	log.LogAttrs(context.Background(), slog.LevelInfo, "request", attrs...)
}
