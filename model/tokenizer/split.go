package tokenizer

import "unicode/utf8"

// ruleKind is one alternative of a pre-tokenizer pattern.
type ruleKind uint8

const (
	ruleContraction ruleKind = iota // 's|'t|'re|'ve|'m|'ll|'d
	ruleWord                        // \p{L}+, with an optional character before it
	ruleNumber                      // \p{N}+ or \p{N}{1,limit}
	rulePunct                       // [^\s\p{L}\p{N}]+
	ruleNewlines                    // \s*[\r\n]+
	ruleTrailing                    // \s+(?!\S)
	ruleSpaces                      // \s+
)

// lead is what a rule may take before its main part.
type lead uint8

const (
	leadNone  lead = iota
	leadSpace      // one U+0020
	leadAny        // [^\r\n\p{L}\p{N}]
)

type rule struct {
	kind     ruleKind
	lead     lead
	fold     bool // ruleContraction: in any case
	limit    int  // ruleNumber: most characters, 0: no limit
	newlines bool // rulePunct: then [\r\n]*
}

// splitRules is a pre-tokenizer pattern: rules in the order in which they are tried, as a regular expression
// tries its alternatives. All patterns in use are made of a few alternatives over five classes of
// characters, so the text is first cut into runs of one class, and each rule then looks at no more than three
// runs. A regular expression engine gives the same pieces (the tests compare), at a tenth of the speed, and
// cannot be stopped in the middle of a long match.
//
// Llama 3's pattern, for one, cuts "don't  stop\n" into "don", "'t", " ", " stop" and "\n": a contraction by itself,
// all but the last space of a run, and that one with the word.
type splitRules struct {
	rules      []rule
	markLetter bool // \p{M} counts as a letter, else as other
	// digits: every number character is a piece of its own before the rules are tried, or (digitRuns) every run
	// of them; to the rules a number is then the end of the text.
	digits, digitRuns bool
	near              nearRules
}

// run is a stretch of one class. White space carries where its newlines are, so that no rule has to look.
type run struct {
	class      class
	start, end int
	last       int // start of its last character
	// White space only: where the newlines end that it starts with (start: none), and where the last newline in
	// it ends (0: none).
	leadNL, lastNL int
	closed         bool // its end is known
}

// lookahead is the number of closed runs a rule may look at: white space, a word or punctuation, white space.
const lookahead = 3

// scanAhead is how many characters the runs are extended by at a time.
const scanAhead = 16

// splitter cuts one segment into pieces.
type splitter struct {
	r       *splitRules
	text    string
	pos     int // start of the next piece
	scanned int // runs are known up to here
	runs    []run
	head    int // runs before head are used up
}

func (s *splitter) begin(r *splitRules, text string) {
	s.r, s.text, s.pos, s.scanned, s.runs, s.head = r, text, 0, 0, s.runs[:0], 0
}

// next returns the next piece; done: there is none left; ok false: the ticks are used up.
func (s *splitter) next(ticks *int) (piece string, ok, done bool) {
	if s.r == nil && s.pos < len(s.text) {
		s.pos = len(s.text)
		return s.text, true, false
	}
	if s.r != nil && s.r.near.usable && s.pos < len(s.text) && *ticks > 0 {
		if n := s.near(); n > 0 {
			*ticks -= 3 + n/4
			return s.take(n), true, false
		}
	}
	for {
		if s.pos == len(s.text) {
			return "", true, true
		}
		if *ticks <= 0 {
			return "", false, false
		}
		if s.scanned < s.pos {
			s.scanned, s.runs, s.head = s.pos, s.runs[:0], 0
		}
		// A run stays while a part of it is left: rules may take less than the whole.
		for s.head < len(s.runs) && s.runs[s.head].closed && s.runs[s.head].end <= s.pos {
			s.head++
		}
		if s.scanned == len(s.text) || len(s.runs)-s.head > lookahead {
			break
		}
		s.scan(ticks)
	}
	*ticks -= 5
	return s.take(s.cut() - s.pos), true, false
}

// take returns the piece of n bytes at pos.
func (s *splitter) take(n int) string {
	from := s.pos
	s.pos += n
	return s.text[from:s.pos]
}

// scan extends the runs by some characters.
func (s *splitter) scan(ticks *int) {
	// Used runs are dropped now and then, so that memory does not grow with the text.
	if s.head > 64 {
		s.runs = s.runs[:copy(s.runs, s.runs[s.head:])]
		s.head = 0
	}
	stop := min(len(s.text), s.scanned+scanAhead)
	for s.scanned < stop {
		at := s.scanned
		c, n := classAt(s.text, at)
		if c == classMark {
			c = classOther
			if s.r.markLetter {
				c = classLetter
			}
		}
		if len(s.runs) == s.head || s.runs[len(s.runs)-1].class != c {
			if len(s.runs) > s.head {
				s.runs[len(s.runs)-1].closed = true
			}
			s.runs = append(s.runs, run{class: c, start: at, leadNL: at})
		}
		r := &s.runs[len(s.runs)-1]
		if c == classSpace && (s.text[at] == '\n' || s.text[at] == '\r') {
			if r.leadNL == at {
				r.leadNL = at + 1
			}
			r.lastNL = at + 1
		}
		last, end := at, at+n
		if n == 1 && c != classSpace { // the rest of an ASCII run, in which each byte is a character
			for end < stop && s.text[end] < utf8.RuneSelf && classTable[s.text[end]] == c {
				last, end = end, end+1
			}
		}
		r.last, r.end = last, end
		s.scanned = end
		*ticks -= end - at - n + 1
	}
	if s.scanned == len(s.text) {
		s.runs[len(s.runs)-1].closed = true
	}
}

// cut returns the end of the piece at pos.
func (s *splitter) cut() int {
	if s.runs[s.head].class == classNumber && (s.r.digits || s.r.digitRuns) {
		if s.r.digitRuns {
			return s.runs[s.head].end
		}
		_, n := utf8.DecodeRuneInString(s.text[s.pos:])
		return s.pos + n
	}
	for i := range s.r.rules {
		if end := s.apply(&s.r.rules[i]); end > 0 {
			return end
		}
	}
	// The parser of patterns makes sure that some rule takes every class.
	panic("BUG: no pre-tokenizer rule takes " + s.text[s.pos:s.runs[s.head].end])
}

// apply returns the end of what the rule takes at pos, 0 if it takes nothing.
func (s *splitter) apply(r *rule) int {
	here := &s.runs[s.head]
	switch r.kind {
	case ruleContraction:
		return s.contraction(r.fold)
	case ruleWord:
		return s.mainPart(classLetter, r.lead)
	case ruleNumber:
		return s.number(r)
	case rulePunct:
		end := s.mainPart(classOther, r.lead)
		if end > 0 && r.newlines {
			if next := s.runAt(end); next != nil && next.class == classSpace {
				end = next.leadNL
			}
		}
		return end
	case ruleNewlines:
		if here.class == classSpace && here.lastNL > s.pos {
			return here.lastNL
		}
	case ruleTrailing:
		if here.class != classSpace {
			return 0
		}
		// At the end of the text all the white space is taken, else its last character is left to the next word.
		if s.runAt(here.end) == nil {
			return here.end
		}
		if here.last > s.pos {
			return here.last
		}
	case ruleSpaces:
		if here.class == classSpace {
			return here.end
		}
	}
	return 0
}

// runAt returns the run that starts at pos, nil where the text ends for the rules.
func (s *splitter) runAt(pos int) *run {
	for i := s.head; i < len(s.runs) && i < s.head+lookahead; i++ {
		r := &s.runs[i]
		if r.start == pos && r.end > pos {
			if r.class == classNumber && (s.r.digits || s.r.digitRuns) {
				return nil
			}
			return r
		}
	}
	return nil
}

// mainPart takes a run of class c, or what is left of it, after at most one character that l allows.
func (s *splitter) mainPart(c class, l lead) int {
	here := &s.runs[s.head]
	if here.class == c {
		// A lead of class c itself makes no difference: the run ends at the same place. Only punctuation may be
		// followed by its own class, and it has no such lead.
		return here.end
	}
	switch l {
	case leadNone:
		return 0
	case leadSpace:
		if s.text[s.pos] != ' ' {
			return 0
		}
	case leadAny:
		b := s.text[s.pos]
		if here.class != classSpace && here.class != classOther || b == '\r' || b == '\n' {
			return 0
		}
	}
	// One character may come before: the piece must start at the last one of its run.
	if here.last != s.pos {
		return 0
	}
	if next := s.runAt(here.end); next != nil && next.class == c {
		return next.end
	}
	return 0
}

// number takes a run of numbers, or as many characters of it as the rule allows.
func (s *splitter) number(r *rule) int {
	end := s.mainPart(classNumber, r.lead)
	if end == 0 || r.limit == 0 {
		return end
	}
	from := s.pos
	for range r.limit {
		if from == end {
			break
		}
		_, n := utf8.DecodeRuneInString(s.text[from:])
		from += n
	}
	return from
}

// contraction takes 's, 't, 're, 've, 'm, 'll or 'd.
func (s *splitter) contraction(fold bool) int {
	if s.text[s.pos] != '\'' {
		return 0
	}
	first, n := foldedLetter(s.text[s.pos+1:], fold)
	end := s.pos + 1 + n
	var want byte
	switch first {
	case 's', 't', 'm', 'd':
		return end
	case 'r', 'v':
		want = 'e'
	case 'l':
		want = 'l'
	default:
		return 0
	}
	if second, n := foldedLetter(s.text[end:], fold); second == want {
		return end + n
	}
	return 0
}

// foldedLetter returns the first letter of s, in lower case if fold is set, and its length in bytes. The long s
// (U+017F) folds to s; no other letter of the contractions has a second partner.
func foldedLetter(s string, fold bool) (byte, int) {
	switch {
	case s == "":
		return 0, 0
	case fold && len(s) >= 2 && s[:2] == "\u017f":
		return 's', 2
	case fold && s[0] >= 'A' && s[0] <= 'Z':
		return s[0] + 'a' - 'A', 1
	}
	return s[0], 1
}
