package tokenizer

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// addedToken is a token that is found in the text before anything else happens to it.
type addedToken struct {
	id   int32
	text string
	// The flags of tokenizer.json. lstrip and rstrip: white space on that side belongs to the token.
	// singleWord: no letter, number or underscore next to it. normalized: under NFC a match is refused if its
	// last character combines with the next one. Under a normalizer that prepends ▁ the reference also puts ▁
	// before the token's own text and so finds it in odd places; here such a token is found as it is written.
	lstrip, rstrip, singleWord, normalized bool
}

// trie finds added tokens by their bytes. The root is an array as nearly every byte of a text is looked up there
// and nowhere else; deeper nodes share one map, since a text reaches them only inside something that looks like a
// token.
type trie struct {
	root [256]int32       // child of the root, 0: none
	only int              // the byte that all tokens start with; -1: there are several, or none
	next map[uint64]int32 // node<<8 | byte → child
	end  []int32          // by node: index in Tokenizer.added, or -1
}

func newTrie() *trie { return &trie{next: map[uint64]int32{}, end: []int32{-1}, only: -1} }

// insert adds a token; of two with one text the first stays.
func (t *trie) insert(text string, token int32) {
	node := int32(0)
	for i := range len(text) {
		child := t.child(node, text[i])
		if child == 0 {
			child = int32(len(t.end))
			t.end = append(t.end, -1)
			if node == 0 {
				t.root[text[i]] = child
				t.only = -1
				if child == 1 {
					t.only = int(text[i])
				}
			} else {
				t.next[uint64(node)<<8|uint64(text[i])] = child
			}
		}
		node = child
	}
	if node != 0 && t.end[node] < 0 {
		t.end[node] = token
	}
}

func (t *trie) child(node int32, b byte) int32 {
	if node == 0 {
		return t.root[b]
	}
	return t.next[uint64(node)<<8|uint64(b)]
}

// seekPhase is what a seeker does between two calls.
type seekPhase uint8

const (
	seekScan  seekPhase = iota
	seekLeft            // taking white space before the match (lstrip)
	seekRight           // taking white space after it (rstrip)
)

// seeker cuts the text into segments and the added tokens between them: leftmost match first, longest at its
// position. The work at one position is bounded by the longest token (maxAddedBytes), and after a match the search
// goes on behind it, so the whole is linear in the text. White space that a token takes along (lstrip, rstrip) can
// be long, so that is done in phases of its own.
type seeker struct {
	t     *Tokenizer
	trie  *trie
	text  string
	plain []Span // those that end behind pos
	phase seekPhase
	pos   int

	segStart, segEnd int   // the segment before the match
	match            int32 // index in Tokenizer.added; -1: the text ends
}

func (s *seeker) begin(t *Tokenizer, tr *trie, text string, plain []Span) {
	*s = seeker{t: t, trie: tr, text: text, plain: plain, match: -1}
	if len(tr.end) == 1 {
		s.pos = len(text) // nothing to find
	}
}

// next goes on to the next match or the end of the text; false: the ticks are used up, call it again. The
// segment is text[segStart:segEnd] then.
func (s *seeker) next(ticks *int) bool {
	for *ticks > 0 {
		switch s.phase {
		case seekScan:
			if s.pos >= len(s.text) {
				s.match, s.segEnd = -1, len(s.text)
				return true
			}
			s.scan(ticks)
		case seekLeft:
			r, n := utf8.DecodeLastRuneInString(s.text[s.segStart:s.segEnd])
			if n == 0 || classOf(r) != classSpace {
				s.phase = seekRight
				break
			}
			s.segEnd -= n
			*ticks--
		case seekRight:
			if s.t.added[s.match].rstrip && s.pos < len(s.text) {
				if c, n := classAt(s.text, s.pos); c == classSpace {
					s.pos += n
					*ticks--
					break
				}
			}
			s.phase = seekScan
			return true
		}
	}
	return false
}

// resume starts the segment after the match that next has found.
func (s *seeker) resume() { s.segStart = s.pos }

// scan looks at some bytes and sets phase when one of them starts a match.
func (s *seeker) scan(ticks *int) {
	stop := min(len(s.text), s.pos+256)
	from := s.pos
	if only := s.trie.only; only >= 0 {
		if at := strings.IndexByte(s.text[s.pos:stop], byte(only)); at >= 0 {
			s.pos += at
		} else {
			s.pos = stop
		}
	}
	for s.pos < stop && s.trie.root[s.text[s.pos]] == 0 {
		s.pos++
	}
	*ticks -= 1 + (s.pos-from)/8
	if s.pos >= stop {
		return
	}
	match, end, walked := s.longest(s.pos)
	*ticks -= 2 * walked
	if match < 0 {
		s.pos++
		return
	}
	a := &s.t.added[match]
	if a.singleWord && (endsInWord(s.text[:s.pos]) || startsWithWord(s.text[end:])) {
		s.pos = end
		return
	}
	s.match, s.segEnd, s.pos = match, s.pos, end
	s.phase = seekRight
	if a.lstrip {
		s.phase = seekLeft
	}
}

// longest returns the longest added token at pos that may be recognised there, and where it ends.
func (s *seeker) longest(pos int) (match int32, end, walked int) {
	for len(s.plain) > 0 && (s.plain[0].End <= pos || s.plain[0].End <= s.plain[0].Start) {
		s.plain = s.plain[1:]
	}
	match = -1
	node := int32(0)
	for i := pos; i < len(s.text); i++ {
		if node = s.trie.child(node, s.text[i]); node == 0 {
			break
		}
		walked++
		token := s.trie.end[node]
		if token < 0 {
			continue
		}
		a := &s.t.added[token]
		// The span that comes next ends behind pos, so it overlaps the match if it starts before its end.
		inPlain := len(s.plain) > 0 && s.plain[0].Start <= i
		if inPlain && s.t.IsControl(a.id) || a.normalized && s.t.nfc && joinsNext(s.text, i+1) {
			continue
		}
		match, end = token, i+1
	}
	return match, end, walked
}

// joinsNext reports whether NFC may combine the character before pos with the one at pos.
func joinsNext(text string, pos int) bool {
	return pos < len(text) && text[pos] >= utf8.RuneSelf &&
		!norm.NFC.PropertiesString(text[pos:]).BoundaryBefore()
}

func endsInWord(s string) bool {
	r, n := utf8.DecodeLastRuneInString(s)
	return n > 0 && isWordRune(r)
}

func startsWithWord(s string) bool {
	r, n := utf8.DecodeRuneInString(s)
	return n > 0 && isWordRune(r)
}

// isWordRune is \w of the reference's regular expressions (Unicode Technical Standard 18, annex C).
func isWordRune(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc,
		unicode.Other_Alphabetic, unicode.Join_Control)
}
