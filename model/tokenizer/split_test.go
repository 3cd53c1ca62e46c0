package tokenizer

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dlclark/regexp2/v2"
)

// splitAlphabet has characters that the patterns tell apart or that are easy to get wrong: letters of several
// scripts, the long s, digits and other numbers, marks, spaces of all kinds, newlines, quotes, emoji.
var splitAlphabet = []rune("aaabSsTtlLrRevVMmdD'''’ſßéЖ中漢ひ한ا" +
	"0129½Ⅷ²٣" + "\u0301\u0338\u094d\ufe0f" + "     \t\n\n\r\u00a0\u0085\u3000\u2028\u200b\u200d" +
	"!!.,_-+<|>/#\"😀👍\U000E0001\x00\x7f\ufffd")

// TestSplitMatchesRegexp compares the rules with the regular expressions they stand for.
func TestSplitMatchesRegexp(t *testing.T) {
	for _, pattern := range []string{patternGPT2, patternLlama3, patternQwen2, patternQwen35} {
		rules := mustPattern(pattern)
		re := regexp2.MustCompile(pattern)
		checkSplit(t, pattern, &rules, func(s string) []string { return regexpPieces(t, re, s) })

		rules.digits = true
		digit := regexp2.MustCompile(`\p{N}`)
		checkSplit(t, "digits, then "+pattern, &rules, func(s string) []string {
			return digitsFirst(t, digit, re, s)
		})
	}
}

func checkSplit(t *testing.T, name string, rules *splitRules, oracle func(string) []string) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 4000 {
		text := make([]rune, rng.IntN(24))
		for i := range text {
			text[i] = splitAlphabet[rng.IntN(len(splitAlphabet))]
			if i > 0 && rng.IntN(3) == 0 {
				text[i] = text[i-1]
			}
		}
		// A run that ends near the end of what is looked at in one go, or behind it.
		if len(text) > 0 && rng.IntN(4) == 0 {
			at := rng.IntN(len(text))
			text = slices.Insert(text, at, slices.Repeat(text[at:at+1], nearBytes-8+rng.IntN(16))...)
		}
		got, want := pieces(rules, string(text)), oracle(string(text))
		if !slices.Equal(got, want) {
			t.Fatalf("%s: %q\n got %q\nwant %q", name, string(text), got, want)
		}
	}
}

// pieces cuts a text with as few ticks at a time as possible.
func pieces(rules *splitRules, text string) (all []string) {
	var s splitter
	s.begin(rules, text)
	for {
		ticks := 1
		piece, ok, done := s.next(&ticks)
		if done {
			return all
		}
		if ok {
			all = append(all, piece)
		}
	}
}

// regexpPieces returns matches and gaps in order.
func regexpPieces(t *testing.T, re *regexp2.Regexp, s string) (all []string) {
	t.Helper()
	matches, err := re.FindAllStringIndex(s, -1)
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, m := range matches {
		if m[0] > at {
			all = append(all, s[at:m[0]])
		}
		all = append(all, s[m[0]:m[1]])
		at = m[1]
	}
	if at < len(s) {
		all = append(all, s[at:])
	}
	return all
}

func digitsFirst(t *testing.T, digit, re *regexp2.Regexp, s string) (all []string) {
	t.Helper()
	for _, part := range regexpPieces(t, digit, s) {
		all = append(all, regexpPieces(t, re, part)...)
	}
	return all
}

// TestPatternsAreNear: the patterns in use take the short way, and the words seen in 16 bytes are those of it.
func TestPatternsAreNear(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, pattern := range []string{patternGPT2, patternLlama3, patternQwen2, patternQwen35} {
		rules := mustPattern(pattern)
		if !rules.near.usable {
			t.Errorf("%s has no near form", pattern)
		}
		words := 0
		for range 20_000 {
			text := make([]byte, 24)
			for i := range text {
				text[i] = "abzAZ@[`{' \t\n.0\x80"[rng.IntN(16)]
				if rng.IntN(2) == 0 {
					text[i] = byte('a' + rng.IntN(26))
				}
			}
			s := splitter{r: &rules, text: string(text)}
			n := rules.near.word(load64(s.text, 0), load64(s.text, 8))
			if n == 0 || text[n] >= 0x80 {
				continue
			}
			words++
			if want := s.near(); n != want {
				t.Fatalf("%s: %q starts with a word of %d bytes, want %d", pattern, text, n, want)
			}
		}
		if words < 1000 {
			t.Errorf("%s: %d words only", pattern, words)
		}
	}
	// White space first: words would not be found where the rules put them.
	if rules := mustPattern(`\s+|\p{L}+|\p{N}+|[^\s\p{L}\p{N}]+`); rules.near.usable {
		t.Error("a pattern in another order has a near form")
	}
}

func TestUnknownPatternIsNamed(t *testing.T) {
	for _, pattern := range []string{`\w+|\s+`, ``, ` ?\p{L}+`, `(a|b`, `a]|[`} {
		if _, err := parsePattern(pattern); err == nil {
			t.Errorf("parsePattern(%q) gave no error", pattern)
		}
	}
}
