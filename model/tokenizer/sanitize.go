package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// sanitizer replaces invalid UTF-8 by U+FFFD, one for each maximal part of a character, and moves the plain
// spans along. Valid text passes through uncopied.
type sanitizer struct {
	text  string
	spans []Span
	pos   int
	out   strings.Builder
	bad   bool // out is in use
	span  int  // spans before it are moved
	open  bool // the start of spans[span] is moved
}

func (s *sanitizer) begin(text string, spans []Span) { *s = sanitizer{text: text, spans: spans} }

// step works for some ticks; done: text and spans are final.
func (s *sanitizer) step(ticks *int) (done bool) {
	for *ticks > 0 && s.pos < len(s.text) {
		stop := min(len(s.text), s.pos+1024)
		for back := 0; stop < len(s.text) && back < 3 && !utf8.RuneStart(s.text[stop]); back++ {
			stop--
		}
		// A chunk does not cut a character, unless the text is broken there.
		chunk := s.text[s.pos:stop]
		switch {
		case s.bad:
			*ticks -= len(chunk)
			s.copy(chunk)
		case utf8.ValidString(chunk):
			*ticks -= 8 + len(chunk)/16
			s.pos = stop
		default:
			// All the text before this chunk is valid, so the spans in it stay where they are.
			s.bad = true
			s.out.Grow(len(s.text) + len(s.text)/8)
			s.out.WriteString(s.text[:s.pos])
			s.spans = append([]Span(nil), s.spans...)
			for s.span < len(s.spans) && s.spans[s.span].End <= s.pos {
				s.span++
			}
			s.open = s.span < len(s.spans) && s.spans[s.span].Start <= s.pos
		}
	}
	if s.pos < len(s.text) {
		return false
	}
	if s.bad {
		s.move(len(s.text), 0)
		s.text = s.out.String()
	}
	return true
}

// copy writes a chunk with invalid bytes replaced.
func (s *sanitizer) copy(chunk string) {
	for i := 0; i < len(chunk); {
		n, ok := scanRune(chunk[i:])
		s.move(s.pos+i, n)
		if ok {
			s.out.WriteString(chunk[i : i+n])
		} else {
			s.out.WriteString("\uFFFD")
		}
		i += n
	}
	s.pos += len(chunk)
}

// move moves the ends of spans that lie in the n bytes at pos, or before: starts down, ends up.
func (s *sanitizer) move(pos, n int) {
	for s.span < len(s.spans) {
		sp := &s.spans[s.span]
		if !s.open {
			if sp.Start >= pos+n && n > 0 {
				return
			}
			sp.Start = s.out.Len()
			s.open = true
		}
		if sp.End > pos {
			return
		}
		sp.End = s.out.Len()
		s.span++
		s.open = false
	}
}

// scanRune returns the length of the character s starts with, or of the bytes that one U+FFFD stands for: the
// longest start of a valid character, at least one byte (Unicode, section 3.9, "maximal subpart").
func scanRune(s string) (n int, ok bool) {
	if s[0] < utf8.RuneSelf {
		return 1, true
	}
	if r, n := utf8.DecodeRuneInString(s); r != utf8.RuneError || n > 1 {
		return n, true
	}
	size, lo, hi := leadByte(s[0])
	for n = 1; n < size && n < len(s) && s[n] >= lo && s[n] <= hi; n++ {
		lo, hi = 0x80, 0xBF
	}
	return n, false
}

// leadByte returns the length of the character that b starts, 1 for a byte that starts none, and the range of
// the byte after it (Unicode, table 3-7).
func leadByte(b byte) (size int, lo, hi byte) {
	switch {
	case b >= 0xC2 && b <= 0xDF:
		return 2, 0x80, 0xBF
	case b == 0xE0:
		return 3, 0xA0, 0xBF
	case b == 0xED:
		return 3, 0x80, 0x9F
	case b >= 0xE1 && b <= 0xEF:
		return 3, 0x80, 0xBF
	case b == 0xF0:
		return 4, 0x90, 0xBF
	case b >= 0xF1 && b <= 0xF3:
		return 4, 0x80, 0xBF
	case b == 0xF4:
		return 4, 0x80, 0x8F
	}
	return 1, 0, 0
}
