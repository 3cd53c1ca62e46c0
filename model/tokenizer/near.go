package tokenizer

import (
	"math/bits"
	"unicode/utf8"
)

// nearRules is a pattern in the form in which the end of a piece is found by looking at its bytes once, without runs. All
// patterns in use have it; in any other, and where a piece is long, the rules cut.
type nearRules struct {
	usable        bool
	contractions  bool
	fold          bool // contractions in any case
	wordLead      lead
	numberLead    lead
	numberLimit   int // 0: none
	punctLead     lead
	punctNewlines bool
	newlines      bool      // white space up to its last newline is a piece
	trailing      bool      // the last character of white space is left to the next piece
	leads         [256]bool // ASCII that words may start with, but for letters and what contractions start with
}

// nearBytes is how many bytes of a piece are looked at in one go, which takes some 0.1 µs; the rules' way can stop in a
// longer one.
const nearBytes = 64

// kind is what the patterns can tell apart about a character.
type kind uint8

const (
	kindOther kind = iota
	kindLetter
	kindNumber
	kindSpace   // white space but for newlines
	kindNewline // \n or \r
	kindEnd     // of the text
	kindFar     // not to be looked at
)

var asciiKinds = func() (kinds [utf8.RuneSelf]kind) {
	for b := range kinds {
		kinds[b] = kindOf(classTable[b], false)
	}
	kinds['\n'], kinds['\r'] = kindNewline, kindNewline
	return kinds
}()

// kindOf returns the kind of the characters of a class, newlines aside.
func kindOf(c class, markLetter bool) kind {
	switch {
	case c == classLetter || c == classMark && markLetter:
		return kindLetter
	case c == classNumber:
		return kindNumber
	case c == classSpace:
		return kindSpace
	}
	return kindOther
}

// nearForm returns rules in that form, if they have it: each at most once, in the order of their kinds. Then no rule takes
// what one before it could take, but that words may start with punctuation.
func nearForm(rules []rule) (a nearRules) {
	for i, r := range rules {
		if i > 0 && r.kind <= rules[i-1].kind {
			return nearRules{}
		}
		switch r.kind {
		case ruleContraction:
			a.contractions, a.fold = true, r.fold
		case ruleWord:
			a.wordLead = r.lead
		case ruleNumber:
			a.numberLead, a.numberLimit = r.lead, r.limit
		case rulePunct:
			a.punctLead, a.punctNewlines = r.lead, r.newlines
		case ruleNewlines:
			a.newlines = true
		case ruleTrailing:
			a.trailing = true
		}
	}
	for b, k := range asciiKinds {
		switch a.wordLead {
		case leadSpace:
			a.leads[b] = b == ' '
		case leadAny:
			a.leads[b] = k == kindSpace || k == kindOther && !(a.contractions && b == '\'')
		}
	}
	a.usable = a.numberLead == leadNone || a.numberLimit == 0
	return a
}

// known appends the ids of the pieces at pos as long as they are near, short and remembered. It returns the length of the
// first that is not: 0 if it is not near.
func (s *splitter) known(ids []int32, m *memo, ticks *int) (_ []int32, n int) {
	if s.r == nil || !s.r.near.usable {
		return ids, 0
	}
	text, left := s.text, *ticks
	for n = 0; left > 0 && len(text)-s.pos >= 16; n = 0 {
		rest := text[s.pos:]
		lo, hi := load64(rest, 0), load64(rest, 8)
		if n = s.r.near.word(lo, hi); n == 0 || rest[n] >= utf8.RuneSelf {
			if n = s.near(); n == 0 {
				left -= nearBytes / 4
				break
			}
		}
		left -= 3 + n/4
		if n > shortBytes {
			break
		}
		found := m.recallShort(shortKeyIn(lo, hi, n))
		if found == 0 {
			break
		}
		ids = appendShort(ids, found)
		s.pos += n
	}
	*ticks = left
	return ids, n
}

// word returns the length of the word that 16 bytes start with, as far as it is ASCII; 0: they start with none, or that
// does not end in them.
func (a *nearRules) word(lo, hi uint64) int {
	// A first byte that may come before a word counts as a letter if there is one behind it.
	first := nonLetters(lo)
	if first&0x80 != 0 && (first&0x8000 != 0 || !a.leads[byte(lo)]) {
		return 0
	}
	others := highBits(first&^0x80) | highBits(nonLetters(hi))<<8
	return bits.TrailingZeros64(others|1<<16) & 15
}

// nonLetters returns the highest bit of every byte that is no ASCII letter. Adding to seven bits carries into the eighth
// from a, or from what follows z, on.
func nonLetters(eight uint64) uint64 {
	const ones = 0x0101010101010101
	lower := (eight | 0x20*ones) & (0x7F * ones)
	return (^(lower + (0x80-'a')*ones) | (lower + (0x80-'z'-1)*ones) | eight) & (0x80 * ones)
}

// highBits gathers the highest bits of eight bytes that have no other bits.
func highBits(eight uint64) uint64 { return eight >> 7 * 0x0102040810204080 >> 56 }

// near returns the length of the piece at pos, 0 if it takes more than a near look to find its end.
func (s *splitter) near() int {
	w := window{s.r, s.text[s.pos:]}
	first, n := w.at(0)
	switch first {
	case kindLetter:
		return w.letters(n)
	case kindNumber:
		return w.number(n)
	case kindNewline:
		return w.space(first, n)
	}
	if s.r.near.contractions {
		if end := s.contraction(s.r.near.fold); end > 0 {
			return end - s.pos
		}
	}
	return w.led(first, n)
}

// window is a text from the start of a piece on. Its methods return the length of the piece, 0 if it is not near.
type window struct {
	r    *splitRules
	text string
}

// at returns the kind of the character at i and where the next one is.
func (w *window) at(i int) (_ kind, next int) {
	switch {
	case i >= nearBytes:
		return kindFar, i
	case i == len(w.text):
		return kindEnd, i
	case w.text[i] < utf8.RuneSelf:
		return asciiKinds[w.text[i]], i + 1
	}
	r, n := utf8.DecodeRuneInString(w.text[i:])
	return kindOf(classOf(r), w.r.markLetter), i + n
}

// led is the piece that starts with white space or punctuation of n bytes and kind first.
func (w *window) led(first kind, n int) int {
	a, space := &w.r.near, w.text[0] == ' '
	switch second, next := w.at(n); {
	case second == kindLetter && (a.wordLead == leadAny || a.wordLead == leadSpace && space):
		return w.letters(next)
	case second == kindOther && space && a.punctLead == leadSpace:
		return w.punct(next)
	case second == kindNumber && space && a.numberLead == leadSpace && !w.r.digits && !w.r.digitRuns:
		return w.run(kindNumber, next)
	case first == kindSpace:
		return w.space(first, n)
	}
	return w.punct(n)
}

// letters is the piece whose letters go on at i.
func (w *window) letters(i int) int {
	for i+8 <= min(len(w.text), nearBytes) {
		other := nonLetters(load64(w.text, i))
		i += bits.TrailingZeros64(other) / 8
		if other == 0 {
			continue
		}
		if w.text[i] < utf8.RuneSelf {
			return i
		}
		k, next := w.at(i)
		if k != kindLetter {
			return i
		}
		i = next
	}
	return w.run(kindLetter, i)
}

// run is the piece whose characters of kind k go on at i.
func (w *window) run(k kind, i int) int {
	for {
		switch here, next := w.at(i); here {
		case k:
			i = next
		case kindFar:
			return 0
		default:
			return i
		}
	}
}

// number is the piece whose first number character has n bytes.
func (w *window) number(n int) int {
	limit := w.r.near.numberLimit
	switch {
	case w.r.digitRuns:
		limit = 0
	case w.r.digits:
		limit = 1
	}
	if limit == 0 {
		return w.run(kindNumber, n)
	}
	for range limit - 1 {
		here, next := w.at(n)
		if here != kindNumber {
			break
		}
		n = next
	}
	return n
}

// punct is the piece whose punctuation goes on at i.
func (w *window) punct(i int) int {
	if i = w.run(kindOther, i); i > 0 && w.r.near.punctNewlines {
		return w.run(kindNewline, i)
	}
	return i
}

// space is the piece that starts with white space of n bytes and kind k, and goes on with nothing that it leads.
func (w *window) space(k kind, n int) int {
	last, newline, next := 0, 0, n
	for i := 0; k == kindSpace || k == kindNewline; k, next = w.at(i) {
		if k == kindNewline {
			newline = next
		}
		last, i, n = i, next, next
	}
	switch {
	case k == kindFar:
		return 0
	case newline > 0 && w.r.near.newlines:
		return newline
	case last > 0 && w.r.near.trailing && k != kindEnd && !(k == kindNumber && (w.r.digits || w.r.digitRuns)):
		return last
	}
	return n
}
