package actors

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"waybill/actors/waybill"
)

// traceSpans are the child spans of a sequence: neighbouring parts of the ledger's cut,
// so they join without gaps.
var traceSpans = [...]waybill.Part{
	waybill.Receive, waybill.Decoding, waybill.Reserve, waybill.Render, waybill.Tokenize, waybill.Hop,
	waybill.Queue, waybill.Prefill, waybill.Decode, waybill.Tail, waybill.Egress,
}

// traceContext is the client's W3C trace context, as headers.
type traceContext struct{ parent, state string }

// Get implements propagation.TextMapCarrier.
func (c traceContext) Get(key string) string {
	switch key {
	case "traceparent":
		return c.parent
	case "tracestate":
		return c.state
	}
	return ""
}

// Set implements propagation.TextMapCarrier; nothing is written to a client.
func (traceContext) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (traceContext) Keys() []string { return []string{"traceparent", "tracestate"} }

// traceSequence emits the spans of a finished sequence: one SERVER span from the
// request's first byte to its last byte or end, named and attributed as vLLM
// does, with a child per phase. Times are the ledger's own stamps.
func traceSequence(tracer trace.Tracer, model string, s *Sequence, split *waybill.Split) {
	b, r := s.Bill, s.req
	end := max(b.At(waybill.LastByte), b.At(waybill.Ended))
	if split.Reason == waybill.Stop || split.Reason == waybill.Length {
		if at := b.At(waybill.LastByte); at != 0 {
			end = at
		}
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), traceContext{r.TraceParent, r.TraceState})
	ctx, span := tracer.Start(ctx, "llm_request", trace.WithSpanKind(trace.SpanKindServer),
		trace.WithTimestamp(waybill.Wall(b.At(waybill.Arrived))), trace.WithAttributes(
			attribute.String("gen_ai.request.id", b.RID), attribute.String("gen_ai.request.model", model),
			attribute.String("gen_ai.response.model", model),
			attribute.Float64("gen_ai.request.temperature", r.Sampling.Temperature), attribute.Float64("gen_ai.request.top_p", r.Sampling.TopP),
			attribute.Int("gen_ai.request.n", r.N), attribute.Int("gen_ai.request.max_tokens", s.maxTokens()),
			attribute.Int("gen_ai.usage.num_sequences", len(r.seqs)),
			attribute.Int64("gen_ai.usage.prompt_tokens", b.PromptTokens.Load()),
			attribute.Int64("gen_ai.usage.completion_tokens", b.OutputTokens.Load()),
			attribute.Int64("waybill.cached_tokens", b.CachedTokens.Load()),
			attribute.String("waybill.finish_reason", split.Reason.String()),
		))
	for _, l := range []struct {
		key string
		p   waybill.Part
	}{
		{"gen_ai.latency.time_to_first_token", waybill.TTFT}, {"gen_ai.latency.e2e", waybill.E2E},
		{"gen_ai.latency.time_in_queue", waybill.Queue}, {"gen_ai.latency.time_in_model_prefill", waybill.Prefill},
		{"gen_ai.latency.time_in_model_decode", waybill.Decode}, {"waybill.latency.intake", waybill.Intake},
		{"waybill.latency.egress", waybill.Egress}, {"waybill.latency.tail", waybill.Tail},
	} {
		if split.Has(l.p) {
			span.SetAttributes(attribute.Float64(l.key, split.Seconds(l.p)))
		}
	}
	if sched, last := b.At(waybill.Scheduled), b.At(waybill.LastToken); sched != 0 && last != 0 {
		span.SetAttributes(attribute.Float64("gen_ai.latency.time_in_model_inference", float64(last-sched)/1e9))
	}
	for _, p := range traceSpans {
		first, last := p.Ends()
		from, to := b.At(first), b.At(last)
		if from == 0 || from > end {
			continue
		}
		if to == 0 || to > end {
			if p == waybill.Egress || b.At(waybill.LastByte) != 0 {
				continue
			}
			to = end // the phase that it ended in
		}
		_, child := tracer.Start(ctx, p.String(), trace.WithTimestamp(waybill.Wall(from)))
		child.End(trace.WithTimestamp(waybill.Wall(to)))
		if to == end && b.At(last) == 0 {
			break
		}
	}
	if split.Reason == waybill.Error {
		span.SetStatus(codes.Error, "the engine failed")
	}
	span.End(trace.WithTimestamp(waybill.Wall(end)))
}

// maxTokens returns the sequence's output bound, or 0 if it was not tokenized.
func (s *Sequence) maxTokens() int {
	if s.limits == nil {
		return 0
	}
	return s.limits.MaxTokens
}
