package ttft

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// Delta is one phase on both sides, means in ms.
type Delta struct {
	Phase      string
	A, B       float64 // 0 if the side does not have it
	HasA, HasB bool    // whether the side exports it
}

// Diff returns B − A; only if both sides have it.
func (d Delta) Diff() float64 { return d.B - d.A }

// Gap compares one whole (ttft or e2e) and the phases that make it up. The deltas
// that both sides have, with Rest, add up to the whole's.
type Gap struct {
	Whole  Delta
	Deltas []Delta // phases of either side, then Rest if there is one
	// Cause is the phase that explains most of the gap, by its own change in the
	// gap's direction; CausePart is the part of intake that explains most of it, if
	// intake is the cause and both sides know its parts.
	Cause, CausePart string
	CauseMs          float64
	// Noise is two standard errors of the gap, NaN if a side does not tell.
	Noise float64
	// Hidden are the phases that only one side exports: they are in Rest.
	Hidden []string
}

// Comparison is A beside B at one level.
type Comparison struct {
	A, B *Level
	Gaps []Gap // ttft, then e2e, as far as both sides have them
}

// Compare puts two levels side by side.
func Compare(a, b *Level) *Comparison {
	c := &Comparison{A: a, B: b}
	if a.TTFT.has(nameTTFT) && b.TTFT.has(nameTTFT) {
		c.Gaps = append(c.Gaps, gapOf(a.TTFT, b.TTFT, nameTTFT, ttftPhases))
	}
	if a.E2E.has(nameE2E) && b.E2E.has(nameE2E) {
		c.Gaps = append(c.Gaps, gapOf(a.E2E, b.E2E, nameE2E, e2ePhases))
	}
	return c
}

// gapOf splits the gap of one whole.
func gapOf(a, b Phases, whole string, phases []string) Gap {
	g := Gap{Whole: deltaOf(a, b, whole)}
	g.Noise = 2 * math.Hypot(a[whole].StdErr, b[whole].StdErr)
	var common []string
	for _, p := range phases {
		d := deltaOf(a, b, p)
		switch {
		case d.HasA && d.HasB:
			common = append(common, p)
		case d.HasA || d.HasB:
			g.Hidden = append(g.Hidden, p)
		default:
			continue
		}
		g.Deltas = append(g.Deltas, d)
	}
	// What only one side exports is in the rest of both, else they could not be
	// compared.
	restA, _ := a.rest(common, whole)
	restB, _ := b.rest(common, whole)
	if len(g.Hidden) > 0 || notable(restA, g.Whole.A) || notable(restB, g.Whole.B) {
		g.Deltas = append(g.Deltas, Delta{Rest, restA, restB, true, true})
	}
	// The cause is the largest change in the gap's own direction: a phase that got
	// better explains nothing of a gap that got worse.
	sign := 1.0
	if g.Whole.Diff() < 0 {
		sign = -1
	}
	for _, d := range g.Deltas {
		if d.HasA && d.HasB && (g.Cause == "" || sign*d.Diff() > sign*g.CauseMs) {
			g.Cause, g.CauseMs = d.Phase, d.Diff()
		}
	}
	if g.Cause == nameIntake {
		var most float64
		for _, p := range intakeParts {
			if d := deltaOf(a, b, p); d.HasA && d.HasB && sign*d.Diff() > most {
				g.CausePart, most = p, sign*d.Diff()
			}
		}
	}
	return g
}

// deltaOf returns a phase of both sides.
func deltaOf(a, b Phases, phase string) Delta {
	return Delta{phase, a[phase].Mean, b[phase].Mean, a.has(phase), b.has(phase)}
}

// Pair returns the comparisons of two sides: by concurrency where both have
// several levels, and the only ones with each other.
func Pair(a, b []*Level) ([]*Comparison, error) {
	if len(a) == 1 && len(b) == 1 {
		return []*Comparison{Compare(a[0], b[0])}, nil
	}
	var out []*Comparison
	for _, x := range a {
		for _, y := range b {
			if x.Name == y.Name {
				out = append(out, Compare(x, y))
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("ttft: A has %s, B has %s: no level in common", levelNames(a), levelNames(b))
	}
	return out, nil
}

// levelNames lists the levels.
func levelNames(levels []*Level) string {
	var out []string
	for _, l := range levels {
		out = append(out, l.Name)
	}
	return strings.Join(out, ", ")
}

// PrintDiff prints comparisons with a verdict for each.
func PrintDiff(w io.Writer, comparisons []*Comparison) {
	for i, c := range comparisons {
		if i > 0 {
			fmt.Fprintln(w)
		}
		c.print(w)
	}
}

func (c *Comparison) print(w io.Writer) {
	fmt.Fprintf(w, "A: %s, %d requests\nB: %s, %d requests\n", c.A.Name, c.A.Requests, c.B.Name, c.B.Requests)
	if len(c.Gaps) == 0 {
		fmt.Fprintln(w, "neither ttft nor e2e is known on both sides: nothing can be compared")
	}
	for _, g := range c.Gaps {
		g.print(w, c)
		g.verdict(w)
	}
	for _, side := range []struct {
		name string
		l    *Level
	}{{"A", c.A}, {"B", c.B}} {
		for _, n := range side.l.Notes {
			fmt.Fprintf(w, "note on %s: %s\n", side.name, n)
		}
	}
}

// print prints the table of one gap.
func (g *Gap) print(w io.Writer, c *Comparison) {
	fmt.Fprintf(w, "\n  %-16s %12s %12s %12s %10s\n", "mean, ms", "A", "B", "B − A", "of the gap")
	row := func(name string, d Delta, whole bool) {
		side := func(v float64, has bool) string {
			if !has {
				return "not exported"
			}
			return fmt.Sprintf("%.3f", v)
		}
		diff, share := "", ""
		if d.HasA && d.HasB {
			diff = fmt.Sprintf("%+.3f", d.Diff())
			if gap := g.Whole.Diff(); !whole && gap != 0 {
				share = fmt.Sprintf("%.1f %%", 100*d.Diff()/gap)
			}
		}
		fmt.Fprintf(w, "  %-16s %12s %12s %12s %10s\n", name, side(d.A, d.HasA), side(d.B, d.HasB), diff, share)
	}
	for _, d := range g.Deltas {
		row(d.Phase, d, false)
		if d.Phase == nameIntake && g.Whole.Phase == nameTTFT {
			for _, p := range intakeParts {
				if part := deltaOf(c.A.TTFT, c.B.TTFT, p); part.HasA && part.HasB {
					row("  "+p, part, false)
				}
			}
		}
	}
	row("= "+g.Whole.Phase, g.Whole, true)
}

// verdict names the cause, or says why none can be named.
func (g *Gap) verdict(w io.Writer) {
	gap := g.Whole.Diff()
	name := g.Whole.Phase
	if math.Abs(gap) < 0.0005 { // below the last digit of a dump line
		fmt.Fprintf(w, "→ %s: no gap\n", name)
		return
	}
	slower := "slower"
	if gap < 0 {
		slower = "faster"
	}
	fmt.Fprintf(w, "→ %s: B is %.3f ms (%.1f %%) %s", name, math.Abs(gap), 100*math.Abs(gap)/g.Whole.A, slower)
	// NaN noise, of a source without variance, compares false: then nothing is said.
	if math.Abs(gap) < g.Noise {
		fmt.Fprintf(w, ", which is within noise (two standard errors are %.3f ms)", g.Noise)
	}
	switch {
	case g.Cause == "":
		fmt.Fprintf(w, "; no phase is known on both sides, so its cause can't be known\n")
	case g.Cause == Rest:
		fmt.Fprintf(w, "; %+.3f ms of it (%.0f %%) is %s", g.CauseMs, 100*g.CauseMs/gap, Rest)
		if len(g.Hidden) > 0 {
			fmt.Fprintf(w, ": only one side exports %s, so which of them it was can't be known", strings.Join(g.Hidden, ", "))
		} else {
			fmt.Fprint(w, ": it lies outside the phases that the two sides export, and can't be told apart")
		}
		fmt.Fprintln(w)
	default:
		fmt.Fprintf(w, "; %s explains %+.3f ms of it (%.0f %%)", g.Cause, g.CauseMs, 100*g.CauseMs/gap)
		if g.CausePart != "" {
			fmt.Fprintf(w, ", most of that in %s", g.CausePart)
		}
		fmt.Fprintln(w)
	}
}
