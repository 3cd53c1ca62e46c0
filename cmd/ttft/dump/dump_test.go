package dump

import (
	"strings"
	"testing"

	"waybill/actors/waybill"
)

const full = "TTFTSPLIT rid=abc intake=1.000 queued=3.001 prefill=4.999 decode=20.000 e2e=29.300 egress=0.250 ttft=9.250 tail=0.300" +
	" prompt=7 cached=3 out=5 steps_waited=2 kernel=0.012 reason=stop"

// read returns the lines of a text and the number of damaged ones.
func read(t *testing.T, text string) ([]Line, int) {
	t.Helper()
	var out []Line
	damaged, err := Read(strings.NewReader(text), func(l Line) { out = append(out, l) })
	if err != nil {
		t.Fatal(err)
	}
	return out, damaged
}

func TestLinesAreFoundAmongOthers(t *testing.T) {
	text := "loading\n" + full + "\n2026-01-01 pod-3 | " + full + "\r\nready: http://x\n" +
		strings.Repeat("x", 3*maxLine) + "\n" + full
	lines, damaged := read(t, text)
	if len(lines) != 3 || damaged != 0 {
		t.Fatalf("%d lines, %d damaged; want 3, 0", len(lines), damaged)
	}
	for _, l := range lines {
		if l.RID != "abc" || l.Reason != "stop" || l.Values["queued"] != 3.001 || l.Values["prompt"] != 7 || len(l.Values) != 13 {
			t.Errorf("line %+v", l)
		}
	}
}

func TestDamagedLinesAreCounted(t *testing.T) {
	for _, bad := range []string{
		"TTFTSPLIT rid=a intake=1.0 queued", "TTFTSPLIT rid=a intake=x", "TTFTSPLIT rid=a intake=NaN",
		"TTFTSPLIT rid=a", "TTFTSPLIT rid=a intake=1 TTFTSPLIT rid=b intake=2", "TTFTSPLIT rid=a intake=1 intake=2",
	} {
		if lines, damaged := read(t, bad+"\n"+full+"\n"); len(lines) != 1 || damaged != 1 {
			t.Errorf("%q: %d lines, %d damaged; want 1, 1", bad, len(lines), damaged)
		}
	}
}

func TestPartsNotReachedAreAbsent(t *testing.T) {
	l, ok, err := Parse("TTFTSPLIT rid=x intake=1.000 e2e=3.000 prompt=0 out=0 reason=abort")
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if _, has := l.Values["queued"]; has || l.Reason != "abort" {
		t.Errorf("line %+v", l)
	}
}

func TestWhatTheLedgerPrintsIsRead(t *testing.T) {
	w := &waybill.Waybill{RID: "r:1", Stream: true}
	for m, at := range []int64{waybill.Arrived: 1e6, waybill.Queued: 3.5e6, waybill.Scheduled: 4e6} {
		if at != 0 {
			w.Stamp(waybill.Milestone(m), at)
		}
	}
	w.End(waybill.Abort, 6e6)
	l, ok, err := Parse(strings.TrimSuffix(string(w.AppendDump(nil)), "\n"))
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if l.RID != "r:1" || l.Reason != "abort" || l.Values["intake"] != 2.5 || l.Values["queued"] != 0.5 || l.Values["e2e"] != 5 {
		t.Errorf("line %+v", l)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(full + "\n" + full)
	f.Add("TTFTSPLIT rid=a intake=1e309 =\n\x00TTFTSPLIT =")
	f.Fuzz(func(t *testing.T, text string) {
		n := 0
		damaged, err := Read(strings.NewReader(text), func(l Line) {
			n++
			if len(l.Values) == 0 {
				t.Fatal("a line without values")
			}
			for _, v := range l.Values {
				if v != v || v-v != 0 {
					t.Fatalf("value %g", v)
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(text, "\n") + 1; n+damaged > got {
			t.Fatalf("%d lines and %d damaged of %d", n, damaged, got)
		}
	})
}
