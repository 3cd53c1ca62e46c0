package ttft

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

// compare returns the comparison of two sources.
func compare(t *testing.T, a, b string) *Comparison {
	t.Helper()
	pairs, err := Pair(source(t, a), source(t, b))
	if err != nil {
		t.Fatal(err)
	}
	return pairs[0]
}

// wantCause checks who is named for a gap.
func wantCause(t *testing.T, g Gap, cause, part string, ms float64) {
	t.Helper()
	if g.Cause != cause || g.CausePart != part || math.Abs(g.CauseMs-ms) > 1e-6 {
		t.Errorf("%s: %s (%s) is named with %+.3f ms, want %s (%s) with %+.3f", g.Whole.Phase, g.Cause, g.CausePart, g.CauseMs, cause, part, ms)
	}
	var sum float64
	for _, d := range g.Deltas {
		if d.HasA && d.HasB {
			sum += d.Diff()
		}
	}
	if math.Abs(sum-g.Whole.Diff()) > 1e-6 {
		t.Errorf("%s: the parts add up to %+.3f ms, the gap is %+.3f", g.Whole.Phase, sum, g.Whole.Diff())
	}
}

func TestAPlantedDelayIsNamedFromDumpLines(t *testing.T) {
	plain := file(t, "a.log", dumpLines(50, "", 0))
	for _, p := range ttftPhases {
		slow := file(t, "b.log", dumpLines(50, p, 5))
		wantCause(t, compare(t, plain, slow).Gaps[0], p, "", 5)
		wantCause(t, compare(t, slow, plain).Gaps[0], p, "", -5)
	}
	for _, p := range e2ePhases {
		slow := file(t, "b.log", dumpLines(50, p, 5))
		wantCause(t, compare(t, plain, slow).Gaps[1], p, "", 5)
	}
}

func TestAPlantedDelayIsNamedFromMetricsWithThePartOfIntake(t *testing.T) {
	plain := file(t, "a", own(50, "", 0))
	for _, p := range []string{"queued", "prefill", "egress"} {
		wantCause(t, compare(t, plain, file(t, "b", own(40, p, 5))).Gaps[0], p, "", 5)
	}
	for _, p := range intakeParts {
		wantCause(t, compare(t, plain, file(t, "b", own(40, p, 5))).Gaps[0], "intake", p, 5)
		wantCause(t, compare(t, file(t, "b", own(40, p, 5)), plain).Gaps[0], "intake", p, -5)
	}
	for _, p := range []string{"decode", "tail"} {
		wantCause(t, compare(t, plain, file(t, "b", own(40, p, 5))).Gaps[1], p, "", 5)
	}
}

func TestASmallerCauseAgainstTheGapIsNotNamed(t *testing.T) {
	// Prefill is 8 ms better, queued 10 ms worse: the gap of 2 ms is queued's.
	a, b := file(t, "a", dumpLines(50, "prefill", 8)), file(t, "b", dumpLines(50, "queued", 10))
	wantCause(t, compare(t, a, b).Gaps[0], "queued", "", 10)
}

func TestWhatVLLMHidesIsNotGuessed(t *testing.T) {
	// Both sides export queued and prefill; 50 ms lie elsewhere on B.
	a, b := file(t, "a", own(50, "", 0)), file(t, "b", vllm(50, 75, 3, 20))
	c := compare(t, a, b)
	wantCause(t, c.Gaps[0], Rest, "", 52-2)
	if got := strings.Join(c.Gaps[0].Hidden, " "); got != "intake egress" {
		t.Errorf("hidden %q", got)
	}
	c.A.Name, c.B.Name = "ours", "theirs"
	var out bytes.Buffer
	PrintDiff(&out, []*Comparison{c})
	golden(t, "diff-hidden.txt", out.Bytes())
	// What both export is named even so.
	wantCause(t, compare(t, a, file(t, "b", vllm(50, 75, 53, 20))).Gaps[0], "queued", "", 50)
}

func TestTwoServersOfVLLMsHistograms(t *testing.T) {
	c := compare(t, file(t, "a", vllm(50, 75, 3, 20)), file(t, "b", vllm(50, 95, 3, 20)))
	wantCause(t, c.Gaps[0], Rest, "", 20)
	var out bytes.Buffer
	PrintDiff(&out, []*Comparison{c})
	if !strings.Contains(out.String(), "can't be told apart") {
		t.Errorf("no word of what can't be known:\n%s", out.String())
	}
}

func TestAGapWithinNoiseIsCalledSo(t *testing.T) {
	var out bytes.Buffer
	c := compare(t, file(t, "a", dumpLines(50, "", 0)), file(t, "b", dumpLines(50, "queued", 0.05)))
	PrintDiff(&out, []*Comparison{c})
	if !strings.Contains(out.String(), "within noise") {
		t.Errorf("a gap of 0.05 ms is not called noise:\n%s", out.String())
	}
	out.Reset()
	c = compare(t, file(t, "a", dumpLines(50, "", 0)), file(t, "b", dumpLines(50, "queued", 15)))
	PrintDiff(&out, []*Comparison{c})
	if strings.Contains(out.String(), "within noise") || !strings.Contains(out.String(), "→ ttft: B is 15.000 ms") {
		t.Errorf("a gap of 15 ms:\n%s", out.String())
	}
}

func TestLevelsArePairedByConcurrency(t *testing.T) {
	a := []*Level{{Name: "c=1"}, {Name: "c=8"}}
	if pairs, err := Pair(a, []*Level{{Name: "c=8"}, {Name: "c=16"}}); err != nil || len(pairs) != 1 || pairs[0].A.Name != "c=8" {
		t.Errorf("pairs %v, error %v", pairs, err)
	}
	if _, err := Pair(a, []*Level{{Name: "c=2"}}); err == nil {
		t.Error("levels without a common one were paired")
	}
	if pairs, err := Pair(a[:1], []*Level{{Name: "c=2"}}); err != nil || len(pairs) != 1 {
		t.Errorf("two single levels: %v", err)
	}
}
