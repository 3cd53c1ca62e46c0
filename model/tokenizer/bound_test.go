package tokenizer

import (
	"strings"
	"testing"
)

// A text is said to have too many tokens only if it has, and every tokenizer here says so of one that is long
// enough.
func TestNoTextIsSaidToBeLongerThanItIs(t *testing.T) {
	for name, tok := range testTokenizers(t) {
		texts := hardTexts(4096)
		texts["kelvin"] = strings.Repeat("\u212a", 1000)
		texts["omega"] = strings.Repeat("\u2126\u0313\u0300\u0345", 1000)
		texts["spaces as pieces"] = strings.Repeat("▁", 1000)
		texts["bytes without a token"] = strings.Repeat("\x04\x06a", 1000)
		for id := range int32(tok.VocabSize()) {
			if s := tok.TokenText(id); len(s) > tok.longest/2 && len(s) > 1 {
				texts[s] = strings.Repeat(s, 8)
			}
		}
		for what, text := range texts {
			for _, special := range []bool{false, true} {
				n := len(tok.Encode(nil, text, EncodeOptions{ParseSpecial: special}))
				if tok.MustExceed(text, n) {
					t.Errorf("%s, %.40q: %d bytes in %d tokens are said to be more", name, what, len(text), n)
				}
			}
		}
		if long := strings.Repeat("a", 10*shrinkage*tok.longest+1); !tok.MustExceed(long, 10) {
			t.Errorf("%s: %d bytes may be 10 tokens of at most %d", name, len(long), tok.longest)
		}
	}
}

func TestTokensOfAnyLengthLeaveTheLengthUnknown(t *testing.T) {
	tok := tiny(t, "llama")
	long := strings.Repeat("a", 10*shrinkage*tok.longest+1)
	strips := *tok
	strips.added = append(strips.added[:len(strips.added):len(strips.added)], addedToken{text: "x", rstrip: true})
	lacks := *tok
	lacks.byteIDs['a'] = -1
	lacksOther := *tok
	lacksOther.nfc, lacksOther.byteIDs['b'] = true, -1
	for name, v := range map[string]*Tokenizer{
		"a token that takes white space": &strips, "a byte without a token": &lacks, "one that others may become": &lacksOther,
	} {
		if v.MustExceed(long, 10) {
			t.Errorf("%s: %d bytes are said to be more than 10 tokens", name, len(long))
		}
	}
}
