package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

// nastyParts are what texts are made of that lie at the edges of what is looked at in one go, of what is remembered, of
// characters and of what the patterns tell apart.
func nastyParts() []string {
	parts := []string{
		"\xff", "\x80", "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\xed\xa0\x80", "\xc0\xaf", "\xf4\x90\x80\x80", "\x00", "\x00\x00a", "\x7f",
		"e\u0301", "\u0301", "a\u0338\u0301", "\u0344", "\u212b", "\u1100\u1161\u11a8", "가\u11a8", "\u0958", "\ufb1d", "\U0001d15e",
		"👩\u200d👩\u200d👧\u200d👦", "🏳\ufe0f\u200d🌈", "👍🏽", "🇩🇪", "\u200d", "\ufeff", "\u00ad", "\u202e",
		"\r", "\r\n", "\r\n\r\n", "\n\r", " \r\n", "\t\r\n ", "\u0085", "\u2028", "\u00a0", "\u3000", "\v", "\f", "\u200b",
		"İ", "ı", "I'ſ", "'ſ", "'S", "'LL", "'Ll", "'lL", "'Re", "'VE", "'d", "'M", "'T", "''s", "' s", "’s", "'", "'İ", "'ı",
		"1", "12", "123", "1234", "½", "Ⅷ", "²", "٣٤", "१२३", "𝟗", "1\u0301", "3.14", "1,000",
		" ", "  ", "   ", "\t", " \t", "▁", "▁▁", "Ġ", "Ċ", "<", "<|", "<|im_", "|>", "</", "<0x0A>", "<s>", "<unk>",
	}
	for _, n := range []int{7, 8, 9, 14, 15, 16, 17, 31, 32, 33, 62, 63, 64, 65, 66, 127, 128, 129} {
		parts = append(parts,
			strings.Repeat("ab", n)[:n], " "+strings.Repeat("xyz", n)[:n-1], strings.Repeat("7", n), strings.Repeat(" ", n), strings.Repeat("\n", n),
			strings.Repeat("=", n), strings.Repeat("é", n/2)+strings.Repeat("a", n%2), strings.Repeat("a", n-2)+"é", strings.Repeat("a", n-1)+"'S",
			strings.Repeat("\xff", n), strings.Repeat("漢", n/3)+strings.Repeat("!", n%3), strings.Repeat(" ", n-1)+"\n", strings.Repeat("\u0301", n/2))
	}
	return parts
}

// nastyText joins parts at random.
func nastyText(rng *rand.Rand, parts []string) string {
	var b strings.Builder
	for range 1 + rng.IntN(8) {
		b.WriteString(parts[rng.IntN(len(parts))])
	}
	return b.String()
}

// TestIDsOfNastyTexts compares with plain merging as TestIDsMatchPlainMerging does, of texts that several goroutines
// encode at the same time with one memo.
func TestIDsOfNastyTexts(t *testing.T) {
	parts := nastyParts()
	for name, tok := range testTokenizers(t) {
		merges := plainMerges(tok)
		rng := rand.New(rand.NewPCG(7, 8))
		texts, want := make([]string, 250), make([][]int32, 250)
		for i := range texts {
			texts[i] = nastyText(rng, parts)
			want[i] = plainIDs(tok, merges, sanitized(texts[i]))
		}
		var wg sync.WaitGroup
		for g := range 3 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(g), 1))
				for range 2 {
					for _, i := range rng.Perm(len(texts)) {
						if got := tok.Encode(nil, texts[i], EncodeOptions{}); !slices.Equal(got, want[i]) {
							t.Errorf("%s: %q\n got %v\nwant %v", name, texts[i], got, want[i])
							return
						}
					}
				}
			})
		}
		wg.Wait()
	}
}

// sanitized returns what Encode cuts in place of a text.
func sanitized(text string) string {
	var s sanitizer
	s.begin(text, nil)
	for ticks := 1 << 40; !s.step(&ticks); {
	}
	return s.text
}
