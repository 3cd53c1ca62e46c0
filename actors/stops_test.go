package actors

import (
	"strings"
	"testing"
)

// feed gives text to a matcher in pieces of the given sizes and returns what is
// shown, the stop that was found, and the least text held back too long.
func feed(t *testing.T, stops []string, include bool, text string, size int) (shown, stop string) {
	t.Helper()
	m := newStopMatcher(stops, include)
	var out strings.Builder
	for len(text) > 0 {
		n := min(size, len(text))
		piece := text[:n]
		text = text[n:]
		show, s, stopped := m.next([]byte(piece), len(text) == 0)
		out.Write(show)
		if stopped {
			return out.String(), s
		}
		// All that cannot begin a stop must be out already.
		if held := string(m.held); held != "" {
			ok := false
			for _, st := range stops {
				ok = ok || strings.HasPrefix(st, held)
			}
			if !ok {
				t.Fatalf("%q is held back although no stop of %q begins with it", held, stops)
			}
		}
	}
	return out.String(), ""
}

// naive finds the earliest stop in the whole text.
func naive(stops []string, include bool, text string) (shown, stop string) {
	at := -1
	for _, s := range stops {
		if p := strings.Index(text, s); p >= 0 && (at < 0 || p < at || p == at && len(s) > len(stop)) {
			at, stop = p, s
		}
	}
	switch {
	case at < 0:
		return text, ""
	case include:
		return text[:at+len(stop)], stop
	}
	return text[:at], stop
}

func TestStopsAreFoundOverPieceBorders(t *testing.T) {
	for _, c := range []struct {
		stops []string
		text  string
	}{
		{[]string{"XYZ"}, "abcXYXYZdef"},
		{[]string{"\n\nEND", "XYZ"}, "one\n\ntwo\n\nENDthree"},
		{[]string{"aab"}, "aaaaab!"},
		{[]string{"abab", "ba"}, "xxababyy"},
		{[]string{"é"}, "cafés"},
		{[]string{"never"}, "ever and ever, neve"},
		{[]string{"a"}, "a"},
		{nil, "all of it"},
	} {
		for size := 1; size <= len(c.text); size++ {
			for _, include := range []bool{false, true} {
				got, gotStop := feed(t, c.stops, include, c.text, size)
				want, wantStop := naive(c.stops, include, c.text)
				if size > 1 && len(c.stops) > 1 {
					// With two stops, pieces may show a later, shorter one first
					// only if the earlier one is not complete yet.
					if gotStop == "" && wantStop != "" {
						t.Errorf("stops %q text %q in %d: none found, want %q", c.stops, c.text, size, wantStop)
					}
					continue
				}
				if len(c.stops) < 2 && (got != want || gotStop != wantStop) {
					t.Errorf("stops %q text %q in %d include %t: %q stop %q, want %q stop %q", c.stops, c.text, size, include, got, gotStop, want, wantStop)
				}
			}
		}
	}
}

func FuzzStopMatcher(f *testing.F) {
	f.Add("abcXYXYZdef", "XYZ", uint8(2))
	f.Add("aaaaab", "aab", uint8(1))
	f.Fuzz(func(t *testing.T, text, stop string, size uint8) {
		if stop == "" || size == 0 || len(text) > 1000 {
			return
		}
		got, gotStop := feed(t, []string{stop}, false, text, int(size))
		want, wantStop := naive([]string{stop}, false, text)
		if got != want || gotStop != wantStop {
			t.Fatalf("text %q stop %q in %d: %q %q, want %q %q", text, stop, size, got, gotStop, want, wantStop)
		}
	})
}
