package bench

import (
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"

	"waybill/actors/waybill"
)

// titles are the metrics' names in the table.
var titles = map[string]string{
	"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2el": "E2E",
	"client_queue_time":           "client queue",
	"ttft_including_client_queue": "TTFT from due time",
	"e2el_including_client_queue": "E2E from due time",
	"ttft_first_event":            "TTFT to first event (vLLM's)",
}

// table prints a run. Failed requests come first: figures of the others alone
// would flatter a server that sheds load.
func (o *Options) table(w io.Writer, s *Summary) {
	fmt.Fprintln(w)
	printFailures(w, s.Records)
	fmt.Fprintf(w, "%s: %d requests in %.2f s\n", o.loadName(s.Concurrency), s.Completed, s.Duration.Seconds())
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %-28s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("requests", "%.2f /s", s.perSecond(s.Completed))
	if len(o.Goodput) > 0 {
		line("goodput", "%.2f /s (%d of %d)", s.perSecond(s.Good), s.Good, s.Completed+s.Failed)
	}
	line("output tokens", "%d, %.1f /s, best second %.0f", s.OutputTokens, s.perSecond(s.OutputTokens), s.MaxTokensPerSecond)
	line("input tokens", "%d, %.1f /s", s.InputTokens, s.perSecond(s.InputTokens))
	if s.Estimated > 0 {
		line("note", "%d answers without usage: their events are counted as tokens", s.Estimated)
	}
	if s.NoText > 0 {
		line("note", "%d answers without text: their TTFT ends at the first event", s.NoText)
	}
	if s.Completed == 0 {
		return // zeros would look like a very fast server
	}
	head := []string{"mean", "median", "std"}
	for _, p := range o.MetricPercentiles {
		head = append(head, "p"+strconv.FormatFloat(p, 'f', -1, 64))
	}
	fmt.Fprintf(w, "  %-28s", "ms")
	for _, h := range head {
		fmt.Fprintf(w, " %10s", h)
	}
	fmt.Fprintln(w)
	for _, m := range o.metricNames(s) {
		v := s.Samples[m]
		if o.closedLoop() && strings.Contains(m, "client_queue") || len(v) == 0 {
			continue // in a closed loop a request is due as soon as there is a slot
		}
		fmt.Fprintf(w, "  %-28s %10.3f %10.3f %10.3f", titles[m], v.mean(), v.percentile(50), v.std())
		for _, p := range o.MetricPercentiles {
			fmt.Fprintf(w, " %10.3f", v.percentile(p))
		}
		fmt.Fprintln(w)
	}
	if p := s.Probes; p != nil {
		v := p.Samples["e2el"]
		line("probes", "%d answered, %d failed; end to end median %.3f, p99 %.3f, max %.3f ms", p.Completed, p.Failed, v.percentile(50), v.percentile(99), v.percentile(100))
	}
	s.printPhases(w)
}

// printPhases prints the server's own account of the same requests.
func (s *Summary) printPhases(w io.Writer) {
	if s.Phases == nil || s.Phases.Count == 0 {
		return
	}
	var parts []string
	for _, p := range ttftParts {
		parts = append(parts, fmt.Sprintf("%s %.3f", p, s.Phases.Mean[p.String()]))
	}
	ttft := s.Phases.Mean[waybill.TTFT.String()]
	fmt.Fprintf(w, "  %-28s %s = %.3f; outside the server %.3f\n", "TTFT by the server's ledger",
		strings.Join(parts, " + "), ttft, s.Samples["ttft"].mean()-ttft)
	if int(s.Phases.Count) != s.Completed {
		fmt.Fprintf(w, "  %-28s the ledger has %.0f requests, this client %d: somebody else was served too\n", "note", s.Phases.Count, s.Completed)
	}
}

// printFailures prints how many requests failed, and why, if any did.
func printFailures(w io.Writer, records []*Record) {
	counts := reasons(records)
	if len(counts) == 0 {
		return
	}
	total := 0
	texts := make([]string, 0, len(counts))
	for text, n := range counts {
		texts = append(texts, text)
		total += n
	}
	sort.Slice(texts, func(i, j int) bool {
		if counts[texts[i]] != counts[texts[j]] {
			return counts[texts[i]] > counts[texts[j]]
		}
		return texts[i] < texts[j]
	})
	fmt.Fprintf(w, "FAILED: %d of %d requests; the figures below are of the others\n", total, len(records))
	const most = 10 // kinds of failure
	for i, text := range texts {
		if i == most {
			fmt.Fprintf(w, "  … and %d other reasons\n", len(texts)-most)
			break
		}
		fmt.Fprintf(w, "  %5d × %s\n", counts[text], text)
	}
}

// loadName says what kind of load a run was.
func (o *Options) loadName(limit int) string {
	most := "any number at once"
	if limit > 0 {
		most = fmt.Sprintf("at most %d at once", limit)
	}
	switch {
	case o.RampUp != "":
		return fmt.Sprintf("%s ramp from %g to %g requests/s, %s", o.RampUp, o.RampUpStart, o.RampUpEnd, most)
	case o.closedLoop():
		return "closed loop, " + most
	}
	kind := fmt.Sprintf("gamma arrivals of shape %g", o.Burstiness)
	switch number(o.Burstiness) {
	case "inf":
		kind = "constant arrivals"
	case 1.0:
		kind = "Poisson arrivals"
	}
	return fmt.Sprintf("%g requests/s, %s, %s", o.RequestRate, kind, most)
}
