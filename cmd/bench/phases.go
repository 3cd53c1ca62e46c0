package bench

import (
	"context"
	"strings"
	"time"

	"waybill/actors/waybill"
	"waybill/cmd/ttft/exposition"
)

// phaseMetric is the server's histogram of the parts of a request's time.
const phaseMetric = "waybill:request_phase_seconds"

// ttftParts are the parts whose sum is the time to first token, in order.
var ttftParts = []waybill.Part{waybill.Intake, waybill.Queue, waybill.Prefill, waybill.Egress}

// serverPhases are the server's own means over a run.
type serverPhases struct {
	Mean  map[string]float64 // ms by phase
	Count float64            // samples of ttft
}

// phaseWatch compares the server's histograms before and after a run.
type phaseWatch struct {
	o      *Options
	before *exposition.Snapshot // nil: the target is not a waybill
}

// scrape returns the server's metrics, or nil if it has none.
func (o *Options) scrape(ctx context.Context) *exposition.Snapshot {
	s, err := exposition.Fetch(ctx, strings.TrimSuffix(o.BaseURL, "/")+"/metrics", o.headers())
	if err != nil {
		return nil
	}
	return s
}

// watchPhases takes the scrape before a run.
func (o *Options) watchPhases(ctx context.Context) phaseWatch {
	const settle = 100 * time.Millisecond // the last warm-up may not be booked yet
	time.Sleep(settle)
	s := o.scrape(ctx)
	if s != nil {
		if _, ok := s.Histogram(phaseMetric, "phase", waybill.TTFT.String()); !ok {
			s = nil
		}
	}
	return phaseWatch{o, s}
}

// done returns the means of all parts, or nil if the target is not a waybill. A
// waybill is booked when its connection is idle again, a moment after the client
// saw the end, so done waits for want samples for a while.
func (w phaseWatch) done(ctx context.Context, want int) *serverPhases {
	if w.before == nil {
		return nil
	}
	const patience = 2 * time.Second
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		after := w.o.scrape(ctx)
		if after == nil {
			return nil
		}
		out := serverPhases{Mean: map[string]float64{}}
		for _, p := range waybill.Parts() {
			b, _ := w.before.Histogram(phaseMetric, "phase", p.String())
			a, ok := after.Histogram(phaseMetric, "phase", p.String())
			if d := a.Since(b); ok && d.Count > 0 {
				out.Mean[p.String()] = d.Mean() * 1e3
				if p == waybill.TTFT {
					out.Count = d.Count
				}
			}
		}
		if int(out.Count) >= want || time.Now().After(deadline) {
			return &out
		}
	}
}
