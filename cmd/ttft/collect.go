package ttft

import (
	"fmt"
	"strings"

	"waybill/actors/waybill"
	"waybill/cmd/ttft/dump"
	"waybill/cmd/ttft/exposition"
)

// collector gathers the dump lines of one level.
type collector struct {
	level   *Level
	lines   []dump.Line // kept whole: quantiles are exact
	damaged int
}

// add keeps a line.
func (c *collector) add(l dump.Line) { c.lines = append(c.lines, l) }

// done turns the lines into distributions. Phases are only added up over the same
// requests: those that have a ttft (streamed, and the first byte was reached), and
// those that ended ordinarily.
func (c *collector) done() *Level {
	l := c.level
	l.Requests, l.Reasons = len(c.lines), map[string]int{}
	var streamed, ended []dump.Line
	for _, line := range c.lines {
		l.Reasons[line.Reason]++
		if _, ok := line.Values[nameTTFT]; ok {
			streamed = append(streamed, line)
		}
		if line.Reason != waybill.Abort.String() && line.Reason != waybill.Error.String() {
			ended = append(ended, line)
		}
	}
	l.E2E = split(ended, append([]string{nameE2E}, e2ePhases...))
	if len(streamed) == 0 {
		l.TTFT = split(ended, ttftPhases)
		l.Notes = append(l.Notes, "no streamed request: there is no ttft")
	} else {
		l.TTFT = split(streamed, append([]string{nameTTFT}, ttftPhases...))
		if other := l.Requests - len(streamed); other > 0 {
			l.Notes = append(l.Notes, fmt.Sprintf("%d of %d requests have no ttft (not streamed, or ended before their first byte) and are left out of its split", other, l.Requests))
		}
	}
	if cut := l.Requests - len(ended); cut > 0 {
		l.Notes = append(l.Notes, fmt.Sprintf("%d aborted or failed requests are left out of decode, tail and e2e", cut))
	}
	if c.damaged > 0 {
		l.Notes = append(l.Notes, fmt.Sprintf("%d damaged lines were skipped", c.damaged))
	}
	return l
}

// split returns the distributions of the phases over the lines.
func split(lines []dump.Line, phases []string) Phases {
	out := Phases{}
	for _, p := range phases {
		var samples []float64
		for _, l := range lines {
			if v, ok := l.Values[p]; ok {
				samples = append(samples, v)
			}
		}
		out[p] = exactDist(samples)
	}
	return out
}

// phaseMetric is waybill's histogram of all parts.
const phaseMetric = "waybill:request_phase_seconds"

// FromScrapes returns what happened between two scrapes of one server: all phases
// if it is a waybill, else what vLLM's histograms tell.
func FromScrapes(name string, before, after *exposition.Snapshot) (*Level, error) {
	levelName, n := levelName("", name)
	if strings.Contains(name, "://") {
		levelName, n = name, 0
	}
	phases := Phases{}
	l := &Level{Name: levelName, Concurrency: n, TTFT: phases, E2E: phases} // histograms do not tell the two sets apart
	take := func(phase, metric, label, value string) bool {
		a, ok := after.Histogram(metric, label, value)
		if !ok {
			return false
		}
		b, _ := before.Histogram(metric, label, value)
		if d := a.Since(b); d.Count > 0 {
			phases[phase] = bucketDist(d)
		}
		return true
	}
	// A waybill exports vLLM's histograms too, but its own tell more.
	if take(nameTTFT, phaseMetric, "phase", nameTTFT) {
		for _, p := range waybill.Parts() {
			take(p.String(), phaseMetric, "phase", p.String())
		}
		l.noteCounts("the split is of means over all that reached each phase")
	} else if err := l.fromVLLM(after, take); err != nil {
		return nil, fmt.Errorf("ttft: %s: %w", name, err)
	}
	if !l.TTFT.has(nameTTFT) {
		return nil, fmt.Errorf("ttft: %s: no request got its first token between the two scrapes", name)
	}
	l.Requests = int(l.TTFT[nameTTFT].Count)
	return l, nil
}

// fromVLLM takes the histograms that vLLM exports, whatever the prefix: other
// servers copy the names behind it.
func (l *Level) fromVLLM(after *exposition.Snapshot, take func(phase, metric, label, value string) bool) error {
	const suffix = "time_to_first_token_seconds"
	prefix, found := "", false
	for _, n := range after.Names() {
		if p, ok := strings.CutSuffix(n, suffix); ok && !found {
			prefix, found = p, true
		}
	}
	if !found {
		return fmt.Errorf("no metric ends in %s: this server does not tell its TTFT, so nothing can be attributed", suffix)
	}
	take(nameTTFT, prefix+suffix, "", "")
	_ = take(waybill.Queue.String(), prefix+"request_queue_time_seconds", "", "") || take(waybill.Queue.String(), prefix+"queue_time_seconds", "", "")
	take(waybill.Prefill.String(), prefix+"request_prefill_time_seconds", "", "")
	take(waybill.Decode.String(), prefix+"request_decode_time_seconds", "", "")
	take(nameE2E, prefix+"e2e_request_latency_seconds", "", "")
	var missing []string
	for _, p := range ttftPhases {
		if !l.TTFT.has(p) {
			missing = append(missing, p)
		}
	}
	if len(missing) > 0 {
		l.Notes = append(l.Notes, fmt.Sprintf("%s not exported: what the others leave of ttft is %s, and which of them it was can't be known",
			strings.Join(missing, ", "), Rest))
	}
	l.noteCounts("queued and prefill are booked when a request ends, ttft at its first token")
	return nil
}

// noteCounts says so if the phases are of different numbers of requests.
func (l *Level) noteCounts(why string) {
	want := l.TTFT[nameTTFT].Count
	for _, p := range l.TTFT.known(ttftPhases) {
		if got := l.TTFT[p].Count; got != want {
			l.Notes = append(l.Notes, fmt.Sprintf("%s has %.0f requests, ttft %.0f: %s", p, got, want, why))
		}
	}
}
