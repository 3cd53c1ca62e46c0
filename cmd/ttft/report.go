package ttft

import (
	"fmt"
	"io"
	"math"
	"sort"
	"strings"

	"waybill/actors/waybill"
)

// Print prints the attribution of each level and its growth from level to level.
func Print(w io.Writer, levels []*Level) {
	for i, l := range levels {
		if i > 0 {
			fmt.Fprintln(w)
		}
		l.print(w)
	}
	growth(w, levels)
}

// print prints one level.
func (l *Level) print(w io.Writer) {
	fmt.Fprintf(w, "%s: %d requests%s\n", l.Name, l.Requests, l.reasons())
	fmt.Fprintf(w, "  %-14s %10s %10s %10s %8s\n", "ms", "mean", "p50", "p99", "share")
	whole := l.TTFT[nameTTFT].Mean
	share := func(v float64) string {
		if whole <= 0 {
			return ""
		}
		return fmt.Sprintf("%.1f %%", 100*v/whole)
	}
	row := func(name string, d Dist, share string) {
		fmt.Fprintf(w, "  %-14s %10.3f %10s %10s %8s\n", name, d.Mean, d.P50, d.P99, share)
	}
	for _, p := range l.TTFT.known(ttftPhases) {
		row(p, l.TTFT[p], share(l.TTFT[p].Mean))
		if p == nameIntake {
			for _, part := range l.TTFT.known(intakeParts) {
				row("  "+part, l.TTFT[part], share(l.TTFT[part].Mean))
			}
		}
	}
	if rest, ok := l.TTFT.rest(ttftPhases, nameTTFT); ok && notable(rest, whole) {
		fmt.Fprintf(w, "  %-14s %10.3f %10s %10s %8s\n", Rest, rest, "–", "–", share(rest))
	}
	if l.TTFT.has(nameTTFT) {
		row("= "+nameTTFT, l.TTFT[nameTTFT], "")
	}
	for _, p := range l.E2E.known([]string{waybill.Decode.String(), waybill.Tail.String(), nameE2E}) {
		row(p, l.E2E[p], "")
	}
	for _, n := range l.Notes {
		fmt.Fprintf(w, "  note: %s\n", n)
	}
}

// notable reports whether a remainder is more than what rounding leaves: dump
// lines have three decimals, sums of histograms nine.
func notable(rest, whole float64) bool {
	return math.Abs(rest) > 0.002 && math.Abs(rest) > 1e-4*whole
}

// reasons lists how the sequences ended.
func (l *Level) reasons() string {
	var out []string
	for r, n := range l.Reasons {
		out = append(out, fmt.Sprintf("%d %s", n, r))
	}
	if len(out) == 0 {
		return ""
	}
	sort.Strings(out)
	return " (" + strings.Join(out, ", ") + ")"
}

// String prints a quantile: exact, ~ interpolated in a bucket, or a bound where
// the bucket is open.
func (q Quantile) String() string {
	switch {
	case q.Exact:
		return fmt.Sprintf("%.3f", q.Value)
	case q.Known:
		return fmt.Sprintf("~%.3f", q.Value)
	case q.High > 0 && !math.IsInf(q.High, 1):
		return fmt.Sprintf("< %g", q.High)
	case q.Low > 0:
		return fmt.Sprintf("> %g", q.Low)
	}
	return "–"
}

// growth prints how each phase's mean grows between levels, and its share of the
// growth of ttft.
func growth(w io.Writer, levels []*Level) {
	if len(levels) < 2 {
		return
	}
	for _, l := range levels {
		if !l.TTFT.has(nameTTFT) {
			return
		}
	}
	// From each level to the next, and over all.
	steps := [][2]*Level{}
	for i := 1; i < len(levels); i++ {
		steps = append(steps, [2]*Level{levels[i-1], levels[i]})
	}
	if len(levels) > 2 {
		steps = append(steps, [2]*Level{levels[0], levels[len(levels)-1]})
	}
	fmt.Fprintf(w, "\ngrowth of the means in ms, and its share of the growth of ttft\n  %-14s", "")
	for _, s := range steps {
		fmt.Fprintf(w, " %24s", s[0].Name+" → "+s[1].Name)
	}
	fmt.Fprintln(w)
	row := func(name string, value func(*Level) (float64, bool)) {
		fmt.Fprintf(w, "  %-14s", name)
		for _, s := range steps {
			a, okA := value(s[0])
			b, okB := value(s[1])
			whole := s[1].TTFT[nameTTFT].Mean - s[0].TTFT[nameTTFT].Mean
			cell := "not known"
			if okA && okB {
				share := ""
				if name != "= "+nameTTFT && whole != 0 {
					share = fmt.Sprintf("%.1f %%", 100*(b-a)/whole)
				}
				cell = fmt.Sprintf("%+.3f %8s", b-a, share)
			}
			fmt.Fprintf(w, " %24s", cell)
		}
		fmt.Fprintln(w)
	}
	mean := func(phase string) func(*Level) (float64, bool) {
		return func(l *Level) (float64, bool) { return l.TTFT[phase].Mean, l.TTFT.has(phase) }
	}
	for _, p := range ttftPhases {
		row(p, mean(p))
	}
	leaves := func(l *Level) (float64, bool) { return l.TTFT.rest(ttftPhases, nameTTFT) }
	for _, l := range levels {
		if rest, _ := leaves(l); notable(rest, l.TTFT[nameTTFT].Mean) {
			row(Rest, leaves)
			break
		}
	}
	row("= "+nameTTFT, mean(nameTTFT))
}
