package actors

import (
	"errors"

	"waybill/actors/waybill"
)

// ErrUnknownRequest is returned for a request id that is neither under way nor
// kept.
var ErrUnknownRequest = errors.New("no such request: it is neither running nor among those kept")

// Waterfall is one sequence over all its milestones. Times are milliseconds since
// its first byte arrived.
type Waterfall struct {
	RequestView
	Reason      string          `json:"reason" doc:"how it ended; running: not yet"`
	Failure     string          `json:"failure" doc:"the error that its client got"`
	Milestones  []MilestoneView `json:"milestones"`
	Spans       []SpanView      `json:"spans"`
	Parts       []PartView      `json:"parts"`
	KernelMs    float64         `json:"kernel_ms" doc:"from the kernel's receipt of the first bytes to the read that returned them, before arrival; -1: not known"`
	StepsWaited int64           `json:"steps_waited" doc:"steps that ended between queued and scheduled"`
	Chunks      int64           `json:"prefill_chunks" doc:"steps that computed its prompt; spans show the first 256 of these and of preemptions"`
	PreemptedMs float64         `json:"preempted_ms" doc:"time without blocks after it had some"`
	Dump        string          `json:"dump" doc:"its TTFTSPLIT line; like parts, empty until it has ended and its answer is written"`
	Shown       bool            `json:"content_shown" doc:"prompt and output may be shown"`
	PromptText  string          `json:"prompt_text" doc:"its prompt, rendered, cut at 16 KiB; only with --console-show-content"`
	OutputText  string          `json:"output_text" doc:"its output, likewise"`
}

// MilestoneView is one stamp.
type MilestoneView struct {
	Name string  `json:"name" doc:"milestone"`
	Ms   float64 `json:"ms" doc:"when it was passed"`
}

// SpanView is a stretch of the waterfall.
type SpanView struct {
	Name   string  `json:"name" doc:"what happened"`
	Kind   string  `json:"kind" doc:"wait, handler, device or socket"`
	Lane   string  `json:"lane" doc:"the actor that owned the time"`
	FromMs float64 `json:"from_ms" doc:"its beginning"`
	ToMs   float64 `json:"to_ms" doc:"its end"`
	Step   uint64  `json:"step" doc:"engine step, for a prefill chunk"`
	Tokens int     `json:"tokens" doc:"prompt tokens that it computed"`
}

// PartView is a part of the split, as in the dump line.
type PartView struct {
	Name string  `json:"name" doc:"as in the dump line and in metrics"`
	Ms   float64 `json:"ms" doc:"milliseconds, in whole microseconds"`
}

// legs are the stretches between neighbouring milestones, with their owners.
var legs = []struct {
	name, kind, lane string
	from, to         waybill.Milestone
}{
	{"receive", "socket", "http", waybill.Arrived, waybill.Received},
	{"decode JSON", "handler", "http", waybill.Received, waybill.Decoded},
	{"reserve a place", "handler", "http", waybill.Decoded, waybill.Reserved},
	{"render the template", "handler", "intake", waybill.Reserved, waybill.Rendered},
	{"tokenize", "handler", "intake", waybill.Rendered, waybill.Tokenized},
	{"hop to the scheduler", "wait", "scheduler", waybill.Tokenized, waybill.Queued},
	{"queued", "wait", "scheduler", waybill.Queued, waybill.Scheduled},
	{"launch", "handler", "gpu-step", waybill.Scheduled, waybill.Launched},
	{"prefill", "device", "gpu-step", waybill.Launched, waybill.FirstToken},
	{"detokenize", "handler", "detokenizer", waybill.FirstToken, waybill.FirstText},
	{"write the first byte", "socket", "sse-writer", waybill.FirstText, waybill.FirstByte},
	{"decode", "device", "gpu-step", waybill.FirstToken, waybill.LastToken},
	{"write the rest", "socket", "sse-writer", waybill.LastToken, waybill.LastByte},
}

// Waterfall returns one sequence's waterfall: of one under way, or of one that is
// kept. Any goroutine.
func (e *Engine) Waterfall(rid string) (*Waterfall, error) {
	for _, s := range e.registry.snapshot() {
		if s.Bill.RID == rid {
			// Parts and dump line come with the last stamp: before it they would
			// change under way, and differ from the line that is printed.
			return e.waterfall(&record{bill: s.Bill, split: waybill.Split{Reason: waybill.Running}}, e.requestView(s, waybill.Now())), nil
		}
	}
	if r := e.exemplars.find(rid); r != nil {
		return e.waterfall(r, recordView(r)), nil
	}
	return nil, ErrUnknownRequest
}

func (e *Engine) waterfall(r *record, v RequestView) *Waterfall {
	b := r.bill
	start := b.At(waybill.Arrived)
	ms := func(stamp int64) float64 { return float64(stamp-start) / 1e6 }
	w := &Waterfall{
		RequestView: v, Reason: b.Reason().String(), Failure: r.failure, KernelMs: -1,
		StepsWaited: b.StepsWaited.Load(), Chunks: b.PrefillChunks.Load(), PreemptedMs: float64(b.PreemptedNs.Load()) / 1e6,
		Milestones: []MilestoneView{}, Spans: []SpanView{}, Parts: []PartView{},
		Shown: e.cfg.ShowContent, PromptText: r.prompt, OutputText: r.output,
	}
	if k := b.KernelNs.Load(); k >= 0 {
		w.KernelMs = float64(k) / 1e6
	}
	for m := waybill.Arrived; m < waybill.NumMilestones; m++ {
		if at := b.At(m); at != 0 {
			w.Milestones = append(w.Milestones, MilestoneView{m.String(), ms(at)})
		}
	}
	for _, l := range legs {
		from, to := b.At(l.from), b.At(l.to)
		if from != 0 && to != 0 {
			w.Spans = append(w.Spans, SpanView{Name: l.name, Kind: l.kind, Lane: l.lane, FromMs: ms(from), ToMs: ms(to)})
		}
	}
	for _, x := range b.Episodes() {
		s := SpanView{Name: "prefill chunk", Kind: "device", Lane: "gpu-step", FromMs: ms(x.From), ToMs: ms(x.To), Step: x.Step, Tokens: x.Tokens}
		if x.Kind == waybill.Preemption {
			s.Name, s.Kind, s.Lane = "preempted", "wait", "scheduler"
		}
		w.Spans = append(w.Spans, s)
	}
	if r.split.Reason != waybill.Running {
		for p := range waybill.NumParts {
			if r.split.Has(p) {
				w.Parts = append(w.Parts, PartView{p.String(), float64(r.split.Micros(p)) / 1e3})
			}
		}
		w.Dump = string(b.AppendDump(nil))
	}
	return w
}

// requestView describes a sequence under way.
func (e *Engine) requestView(s *Sequence, now int64) RequestView {
	v := billView(s.Bill)
	v.AgeMs = float64(now-s.Bill.At(waybill.Arrived)) / 1e6
	switch b := s.Bill; {
	case b.Reason() != waybill.Running:
		v.State = b.Reason().String()
	case b.At(waybill.FirstToken) != 0:
		v.State = "decode"
	case b.At(waybill.Scheduled) != 0:
		v.State = "prefill"
	case b.At(waybill.Queued) != 0:
		v.State = "waiting"
	default:
		v.State = "intake"
	}
	pending, lag := s.req.writer.backlog(now)
	v.Pending, v.LagMs = pending, float64(lag)/1e6
	return v
}

// recordView describes a sequence that has ended.
func recordView(r *record) RequestView {
	v := billView(r.bill)
	v.State = r.split.Reason.String()
	if r.split.Has(waybill.E2E) {
		v.AgeMs = float64(r.split.Micros(waybill.E2E)) / 1e3
	}
	return v
}

// billView takes what a waybill tells by itself.
func billView(b *waybill.Waybill) RequestView {
	v := RequestView{
		RID: b.RID, Stream: b.Stream, Arrived: unixMs(b.At(waybill.Arrived)),
		Prompt: b.PromptTokens.Load(), Cached: b.CachedTokens.Load(), Output: b.OutputTokens.Load(), Preempted: b.Preemptions.Load(),
	}
	if first := b.At(waybill.FirstByte); first != 0 && b.Stream {
		v.TTFTMs = float64(first-b.At(waybill.Arrived)) / 1e6
	}
	return v
}
