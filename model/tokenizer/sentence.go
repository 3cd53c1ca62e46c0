package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// prefixRule says when SentencePiece style puts a space before a segment.
type prefixRule uint8

const (
	prefixNever   prefixRule = iota
	prefixAlways             // Prepend normalizer, and add_space_prefix in GGUF: before every segment
	prefixMissing            // Metaspace "always": before every segment that has none
	prefixFirst              // Metaspace "first": at the start of the text only, if it has none
)

// sentenceRules is how SentencePiece style prepares a segment. Inside this package a space stays a space:
// the vocabulary's ▁ is read as one, and so is a ▁ in the text, as normalization makes them equal.
type sentenceRules struct {
	prefix prefixRule
	// cut says where a segment is cut before it is merged. A segment need not be cut at all, but then a long
	// text is one piece; cutting where no merge can reach across gives the same ids.
	cut sentenceCut
	// stripFirst: decoding drops one space at the very start.
	stripFirst bool
}

type sentenceCut uint8

const (
	cutNever  sentenceCut = iota
	cutWords              // before a space that follows something else; exact if no piece has such a space inside
	cutSpaces             // before every space: Metaspace with split
)

// chooseCut allows cutWords if no merge reaches over the start of a word.
func (t *Tokenizer) chooseCut(mergedIDs []int32) sentenceCut {
	for _, id := range mergedIDs {
		text := strings.TrimLeft(t.TokenText(id), " ")
		if strings.Contains(text, " ") {
			return cutNever
		}
	}
	return cutWords
}

// spacer copies a segment with its prefix and with ▁ replaced.
type spacer struct {
	src string
	pos int
	out strings.Builder
	raw bool // the source can be taken as it is
}

func (s *spacer) begin(src string, rules *sentenceRules, first bool) {
	*s = spacer{src: src}
	missing := !strings.HasPrefix(src, " ") && !strings.HasPrefix(src, "▁")
	prefix := rules.prefix == prefixAlways || rules.prefix == prefixMissing && missing ||
		rules.prefix == prefixFirst && missing && first
	if prefix {
		s.out.Grow(len(src) + 1)
		s.out.WriteByte(' ')
		return
	}
	s.raw = true
}

// step works for some ticks; done: result is complete.
func (s *spacer) step(ticks *int) (done bool) {
	for *ticks > 0 && s.pos < len(s.src) {
		stop := min(len(s.src), s.pos+1024)
		for stop < len(s.src) && !utf8.RuneStart(s.src[stop]) {
			stop--
		}
		chunk := s.src[s.pos:stop]
		*ticks -= 10 + len(chunk)/16
		if marked := strings.Contains(chunk, "▁"); marked {
			if s.raw {
				s.raw = false
				s.out.Grow(len(s.src))
				s.out.WriteString(s.src[:s.pos])
			}
			*ticks -= len(chunk) / 4
			chunk = strings.ReplaceAll(chunk, "▁", " ")
		}
		if !s.raw {
			s.out.WriteString(chunk)
		}
		s.pos = stop
	}
	return s.pos == len(s.src)
}

func (s *spacer) result() string {
	if s.raw {
		return s.src
	}
	return s.out.String()
}

// wordCutter cuts a prepared segment into pieces.
type wordCutter struct {
	cut     sentenceCut
	text    string
	pos     int // start of the next piece
	scanned int
	inWord  bool // something other than a space lies between pos and scanned
}

func (w *wordCutter) begin(cut sentenceCut, text string) { *w = wordCutter{cut: cut, text: text} }

// next is like splitter.next.
func (w *wordCutter) next(ticks *int) (piece string, ok, done bool) {
	if w.pos == len(w.text) {
		return "", true, true
	}
	// One piece for the whole segment: the merger works on it in slices, at n log n.
	if w.cut == cutNever {
		w.scanned = len(w.text)
	}
	for {
		stop := min(len(w.text), w.scanned+64)
		from := w.scanned
		for w.scanned < stop {
			space := w.text[w.scanned] == ' '
			if space && w.scanned > w.pos && (w.inWord || w.cut == cutSpaces) {
				*ticks -= 5 + (w.scanned-from)/8
				return w.take(), true, false
			}
			w.inWord = w.inWord || !space
			w.scanned++
		}
		*ticks -= 5 + (w.scanned-from)/8
		if w.scanned == len(w.text) {
			return w.take(), true, false
		}
		if *ticks <= 0 {
			return "", false, false
		}
	}
}

// take returns the text up to scanned as a piece.
func (w *wordCutter) take() string {
	from := w.pos
	w.pos, w.inWord = w.scanned, false
	return w.text[from:w.pos]
}
