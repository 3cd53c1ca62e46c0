package bench

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"waybill/actors/waybill"
	"waybill/cmd/ttft/dump"
)

// phaseBins is the number of parts in which the step is shown.
const phaseBins = 10

// waitMetric is the server's histogram of waits (tokenized to scheduled) in units
// of the longest step that each overlaps.
const waitMetric = "waybill:request_wait_steps"

// probeReport is the outcome of a phase probe. Times are in ms.
type probeReport struct {
	Streams, Probes, Failed, Lost int       // Lost: probes outside the seen steps
	Reasons                       []*Record // all probes, for the reasons of failures
	IdleTTFT, Step                series
	TTFT, ITL                     series // of the probes; of the streams meanwhile
	Added, AddedSteps, Rest       series // TTFT over the idle median; until the step's end
	Bins                          [phaseBins]phaseBin

	// Of the server's ledger, if it can be had.
	Queued, QueuedSteps series // dump lines
	Beyond              series // queued over the longest step it overlaps
	DumpMissing         int    // probes without a line, of a dump file
	HasDump             bool
	WaitCount, WaitMean float64 // histogram of waits, in steps
	WaitMax, WaitWithin float64 // upper bound of the largest; share up to one step
	HasWait             bool
	Restarts            int
	StreamErr           string
}

// phaseBin holds the probes that came in one tenth of the step.
type phaseBin struct {
	Added, AddedSteps, Rest, Queued series
}

// analyse puts the probes where they fell in the steps.
func (o *Options) analyse(r *probeRun) (*probeReport, error) {
	ends := stepEnds(r.stamps, o.Probe.Streams)
	if len(ends) < 2 {
		return nil, errors.New("bench: probe: the streams showed no steps")
	}
	rep := &probeReport{Streams: o.Probe.Streams, Restarts: r.restarts, StreamErr: r.streamErr, Reasons: r.probes}
	for _, rec := range r.idle {
		rep.IdleTTFT = append(rep.IdleTTFT, ms(rec.TTFT()))
	}
	for _, d := range r.gaps {
		rep.ITL = append(rep.ITL, ms(d))
	}
	for _, d := range lengths(ends) {
		rep.Step = append(rep.Step, ms(d))
	}
	queued, err := o.dumped(r)
	if err != nil {
		return nil, err
	}
	rep.HasDump = queued != nil
	// The median: a stall of the machine in the idle phase must not make waits short.
	idle := rep.IdleTTFT.percentile(50)
	for i, rec := range r.probes {
		if rec.Err != "" {
			rep.Failed++
			continue
		}
		p, ok := locate(ends, rec.Sent)
		if !ok {
			rep.Lost++
			continue
		}
		rep.Probes++
		added := ms(rec.TTFT()) - idle
		steps := added / ms(longest(ends, rec.Sent, rec.FirstText))
		rep.TTFT = append(rep.TTFT, ms(rec.TTFT()))
		bin := &rep.Bins[min(int(p.phase*phaseBins), phaseBins-1)]
		rep.Added, bin.Added = append(rep.Added, added), append(bin.Added, added)
		rep.AddedSteps, bin.AddedSteps = append(rep.AddedSteps, steps), append(bin.AddedSteps, steps)
		rep.Rest, bin.Rest = append(rep.Rest, ms(p.rest)), append(bin.Rest, ms(p.rest))
		if !rep.HasDump {
			continue
		}
		if q, ok := queued[fmt.Sprintf("%s-%d", r.tag, i)]; ok {
			rep.Queued, bin.Queued = append(rep.Queued, q), append(bin.Queued, q)
			// The ledger's clock is another process's; the request's way to it is well
			// below a step, so the wait is laid from the moment of sending.
			until := rec.Sent.Add(time.Duration(q * float64(time.Millisecond)))
			step := ms(longest(ends, rec.Sent, until))
			rep.QueuedSteps, rep.Beyond = append(rep.QueuedSteps, q/step), append(rep.Beyond, q-step)
		} else {
			rep.DumpMissing++
		}
	}
	rep.waits(r)
	return rep, nil
}

// waits reads the server's histogram of waits.
func (rep *probeReport) waits(r *probeRun) {
	if r.before == nil || r.after == nil {
		return
	}
	after, ok := r.after.Histogram(waitMetric, "", "")
	if !ok {
		return
	}
	before, _ := r.before.Histogram(waitMetric, "", "")
	h := after.Since(before)
	rep.HasWait = h.Count > 0
	rep.WaitCount, rep.WaitMean, rep.WaitMax, rep.WaitWithin = h.Count, h.Mean(), h.Max(), h.AtMost(1)
}

// dumped returns the time from queued to scheduled by request id, or nil without a
// dump file.
func (o *Options) dumped(r *probeRun) (map[string]float64, error) {
	if o.Probe.DumpFile == "" {
		return nil, nil
	}
	f, err := os.Open(o.Probe.DumpFile)
	if err != nil {
		return nil, fmt.Errorf("bench: probe: dump file: %w", err)
	}
	defer f.Close()
	if _, err := f.Seek(r.dumpFrom, io.SeekStart); err != nil {
		return nil, fmt.Errorf("bench: probe: dump file: %w", err)
	}
	out := map[string]float64{}
	_, err = dump.Read(f, func(l dump.Line) {
		if q, ok := l.Values[waybill.Queue.String()]; ok && strings.HasPrefix(l.RID, r.tag) {
			out[l.RID] = q
		}
	})
	return out, err
}

// print prints the report.
func (rep *probeReport) print(w io.Writer) {
	fmt.Fprintln(w)
	printFailures(w, rep.Reasons)
	if rep.StreamErr != "" {
		fmt.Fprintf(w, "WARNING: a stream ended before the last probe: %s\n", rep.StreamErr)
	}
	fmt.Fprintf(w, "phase probe: %d requests into %d decoding streams\n", rep.Probes, rep.Streams)
	fmt.Fprintf(w, "  %-34s %9s %9s %9s %9s\n", "", "mean", "p50", "p99", "max")
	line := func(name string, v series) {
		if len(v) > 0 {
			fmt.Fprintf(w, "  %-34s %9.3f %9.3f %9.3f %9.3f\n", name, v.mean(), v.percentile(50), v.percentile(99), v.percentile(100))
		}
	}
	line("TTFT when idle, ms", rep.IdleTTFT)
	line("step, ms", rep.Step)
	line("TTFT of the probes, ms", rep.TTFT)
	line("ITL of the streams meanwhile, ms", rep.ITL)
	line("added wait, ms", rep.Added)
	line("added wait, longest steps overlapped", rep.AddedSteps)
	line("rest of the step on arrival, ms", rep.Rest)
	line("ledger: queued → scheduled, ms", rep.Queued)
	line("ledger: queued → scheduled, steps", rep.QueuedSteps)
	line("ledger: queued over the longest step", rep.Beyond)
	if rep.HasWait {
		fmt.Fprintf(w, "  ledger: wait (tokenized → scheduled) over %.0f sequences: mean %.3f steps, largest ≤ %s, %.1f %% within one step\n",
			rep.WaitCount, rep.WaitMean, bound(rep.WaitMax), 100*rep.WaitWithin)
		if extra := rep.WaitCount - float64(rep.Probes+rep.Failed+rep.Lost); extra != 0 {
			fmt.Fprintf(w, "  note: that is %+.0f sequences against the probes (%d restarts of streams)\n", extra, rep.Restarts)
		}
	}
	if rep.HasDump && rep.DumpMissing > 0 {
		fmt.Fprintf(w, "  note: %d probes have no line in the dump file\n", rep.DumpMissing)
	}
	if rep.Lost > 0 {
		fmt.Fprintf(w, "  note: %d probes fell before the first or after the last step seen\n", rep.Lost)
	}
	rep.printBins(w)
}

// printBins prints the distribution over the step's phase.
func (rep *probeReport) printBins(w io.Writer) {
	fmt.Fprintf(w, "  by phase of the step on arrival: added wait in ms (and steps), rest of the step")
	if rep.HasDump {
		fmt.Fprint(w, ", queued → scheduled by the ledger")
	}
	fmt.Fprintf(w, "\n  %-10s %5s %9s %9s %8s %8s %9s", "phase", "n", "mean", "max", "steps", "max", "rest")
	if rep.HasDump {
		fmt.Fprintf(w, " %9s %9s", "queued", "max")
	}
	fmt.Fprintln(w)
	for i, b := range rep.Bins {
		fmt.Fprintf(w, "  %.1f – %.1f  %5d %9.3f %9.3f %8.3f %8.3f %9.3f", float64(i)/phaseBins, float64(i+1)/phaseBins, len(b.Added),
			b.Added.mean(), b.Added.percentile(100), b.AddedSteps.mean(), b.AddedSteps.percentile(100), b.Rest.mean())
		if rep.HasDump {
			fmt.Fprintf(w, " %9.3f %9.3f", b.Queued.mean(), b.Queued.percentile(100))
		}
		fmt.Fprintln(w)
	}
}

// bound prints a bucket's bound.
func bound(v float64) string {
	if math.IsInf(v, 1) {
		return "∞"
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// result returns the report as JSON.
func (rep *probeReport) result(o *Options, now time.Time) map[string]any {
	out := map[string]any{
		"date": now.Format("20060102-150405"), "backend": o.Backend, "model_id": o.Model, "probe": "phase",
		"probe_streams": rep.Streams, "probe_completed": rep.Probes, "probe_failed": rep.Failed, "probe_lost": rep.Lost,
		"failed_reasons": reasons(rep.Reasons), "stream_restarts": rep.Restarts, "stream_error": rep.StreamErr,
	}
	figures := func(name string, v series) {
		if len(v) > 0 {
			out["mean_"+name], out["median_"+name], out["p99_"+name], out["max_"+name] = v.mean(), v.percentile(50), v.percentile(99), v.percentile(100)
		}
	}
	figures("idle_ttft_ms", rep.IdleTTFT)
	figures("step_ms", rep.Step)
	figures("ttft_ms", rep.TTFT)
	figures("stream_itl_ms", rep.ITL)
	figures("added_ms", rep.Added)
	figures("added_steps", rep.AddedSteps)
	figures("ledger_queued_ms", rep.Queued)
	figures("ledger_queued_steps", rep.QueuedSteps)
	figures("ledger_beyond_step_ms", rep.Beyond)
	if rep.HasWait {
		out["ledger_wait_count"], out["mean_ledger_wait_steps"] = rep.WaitCount, rep.WaitMean
		out["max_ledger_wait_steps_le"], out["ledger_wait_share_within_one_step"] = number(rep.WaitMax), rep.WaitWithin
	}
	bins := []any{}
	for _, b := range rep.Bins {
		bins = append(bins, map[string]any{
			"count": len(b.Added), "mean_added_ms": b.Added.mean(), "max_added_ms": b.Added.percentile(100),
			"mean_added_steps": b.AddedSteps.mean(), "max_added_steps": b.AddedSteps.percentile(100),
			"mean_rest_ms": b.Rest.mean(), "mean_ledger_queued_ms": b.Queued.mean(),
		})
	}
	out["phase_bins"] = bins
	for k, v := range o.Metadata {
		out[k] = v
	}
	return out
}
