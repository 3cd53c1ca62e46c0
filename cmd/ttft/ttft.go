// Package ttft says where the time to first token went: from dump lines, or from
// a server's /metrics scraped twice; per concurrency level, and as the difference
// of two runs or two servers. What a server does not export is called unknown.
package ttft

import (
	"math"
	"sort"

	"waybill/actors/waybill"
	"waybill/cmd/ttft/exposition"
)

// Phases of a request's time by name, as in dump lines and metrics.
var (
	// ttftPhases add up to the time to first token.
	ttftPhases = names(waybill.Intake, waybill.Queue, waybill.Prefill, waybill.Egress)
	// e2ePhases add up to the whole time. Egress overlaps decode, so it is not one.
	e2ePhases = names(waybill.Intake, waybill.Queue, waybill.Prefill, waybill.Decode, waybill.Tail)
	// intakeParts add up to intake.
	intakeParts = names(waybill.Receive, waybill.Decoding, waybill.Reserve, waybill.Render, waybill.Tokenize, waybill.Hop)
	nameTTFT    = waybill.TTFT.String()
	nameE2E     = waybill.E2E.String()
	nameIntake  = waybill.Intake.String()
)

// Rest is the name of what no exported phase accounts for.
const Rest = "unattributed"

// names returns the parts' names.
func names(parts ...waybill.Part) []string {
	out := make([]string, len(parts))
	for i, p := range parts {
		out[i] = p.String()
	}
	return out
}

// Quantile is a quantile in ms, as far as it is known: Value lies in Low to High.
type Quantile struct {
	Value, Low, High float64
	Known            bool // Value means something: exact, or interpolated in a bucket
	Exact            bool
}

// Dist is the distribution of one phase in ms.
type Dist struct {
	Count    float64 // samples; 0: the phase is not known
	Mean     float64 // exact, also of a histogram
	P50, P99 Quantile
	StdErr   float64 // of the mean; NaN if the source does not tell
}

// Level is what was seen at one concurrency.
type Level struct {
	Name        string // c=8, or whatever the source is called
	Concurrency int    // 0: not known
	Requests    int
	Reasons     map[string]int // ended sequences by reason, of dump lines
	// TTFT are the phases of the requests that have a ttft, with ttft itself and
	// intake's parts; E2E those of the requests that ended ordinarily, with e2e. The
	// two sets differ: a client may leave after its first byte.
	TTFT, E2E Phases
	Notes     []string // what is not known, and why
}

// Phases are distributions by phase, all of one set of requests.
type Phases map[string]Dist

// has reports whether a phase is known.
func (ph Phases) has(phase string) bool { return ph[phase].Count > 0 }

// known returns those of the phases that are known.
func (ph Phases) known(phases []string) []string {
	var out []string
	for _, p := range phases {
		if ph.has(p) {
			out = append(out, p)
		}
	}
	return out
}

// rest returns what the phases leave of the whole, in ms; false if the whole is
// not known.
func (ph Phases) rest(phases []string, whole string) (float64, bool) {
	if !ph.has(whole) {
		return 0, false
	}
	left := ph[whole].Mean
	for _, p := range ph.known(phases) {
		left -= ph[p].Mean
	}
	return left, true
}

// exactDist computes the distribution of samples. Quantiles are interpolated
// linearly between samples.
func exactDist(samples []float64) Dist {
	if len(samples) == 0 {
		return Dist{}
	}
	s := append([]float64(nil), samples...)
	sort.Float64s(s)
	n := float64(len(s))
	d := Dist{Count: n}
	for _, v := range s {
		d.Mean += v / n
	}
	var squares float64
	for _, v := range s {
		squares += (v - d.Mean) * (v - d.Mean)
	}
	d.StdErr = math.NaN()
	if len(s) > 1 {
		d.StdErr = math.Sqrt(squares / (n - 1) / n)
	}
	quantile := func(q float64) Quantile {
		at := q * (n - 1)
		low := int(at)
		v := s[low]
		if low+1 < len(s) {
			v += (at - float64(low)) * (s[low+1] - s[low])
		}
		return Quantile{Value: v, Low: v, High: v, Known: true, Exact: true}
	}
	d.P50, d.P99 = quantile(0.5), quantile(0.99)
	return d
}

// bucketDist reads a histogram in seconds.
func bucketDist(h exposition.Histogram) Dist {
	quantile := func(q float64) Quantile {
		r, v, ok := h.Quantile(q)
		return Quantile{Value: v * 1e3, Low: r.Low * 1e3, High: r.High * 1e3, Known: ok}
	}
	return Dist{Count: h.Count, Mean: h.Mean() * 1e3, P50: quantile(0.5), P99: quantile(0.99), StdErr: math.NaN()}
}
