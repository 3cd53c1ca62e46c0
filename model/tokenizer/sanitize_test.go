package tokenizer

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestInvalidUTF8IsReplaced(t *testing.T) {
	// The examples of the Unicode standard, table 3-8 and after.
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"a\xF1\x80\x80\xE1\x80\xC2b\x80c\x80\xBFd", "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd"},
		{"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82A", strings.Repeat("\uFFFD", 8) + "A"},
		{"\xED\xA0\x80\xED\xBF\xBF\xED\xAFA", strings.Repeat("\uFFFD", 8) + "A"},
		{"\xF4\x91\x92\x93\xFFA\x80\xBFB", strings.Repeat("\uFFFD", 5) + "A\uFFFD\uFFFDB"},
		{"\xE1\x80\xE2\xF0\x91\x92\xF1\xBFA", "\uFFFD\uFFFD\uFFFD\uFFFDA"},
		{strings.Repeat("é", 700) + "\xC3", strings.Repeat("é", 700) + "\uFFFD"},
	} {
		var s sanitizer
		s.begin(c.in, nil)
		for ticks := 1; !s.step(&ticks); ticks = 1 {
		}
		if s.text != c.want {
			t.Errorf("%+q: got %+q, want %+q", c.in, s.text, c.want)
		}
	}
}

// TestSpansMoveWithReplacedBytes: what a span covered it still covers.
func TestSpansMoveWithReplacedBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	parts := []string{"a", "\xff", "é", "\xe2\x82", "<|im_end|>", strings.Repeat("x", 600)}
	for range 500 {
		var in, want strings.Builder
		var spans, moved []Span
		for range rng.IntN(12) {
			part := parts[rng.IntN(len(parts))]
			from, to := in.Len(), want.Len()
			in.WriteString(part)
			if utf8.ValidString(part) {
				want.WriteString(part)
			} else {
				want.WriteString("\uFFFD")
			}
			if rng.IntN(2) == 0 {
				spans = append(spans, Span{from, in.Len()})
				moved = append(moved, Span{to, want.Len()})
			}
		}
		var s sanitizer
		s.begin(in.String(), spans)
		for ticks := 1; !s.step(&ticks); ticks = 1 {
		}
		if s.text != want.String() {
			t.Fatalf("%+q: got %+q, want %+q", in.String(), s.text, want.String())
		}
		for i := range moved {
			if s.spans[i] != moved[i] {
				t.Fatalf("%+q: spans %v moved to %v, want %v", in.String(), spans, s.spans, moved)
			}
		}
	}
}
