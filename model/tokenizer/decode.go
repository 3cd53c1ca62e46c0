package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// DecoderOptions says how a Decoder writes tokens.
type DecoderOptions struct {
	// SkipSpecial leaves special tokens out.
	SkipSpecial bool
	// Continuation is for tokens that follow a prompt: the space that SentencePiece style puts before the first
	// word of a text is kept, as there it is a space between words.
	Continuation bool
}

// Decoder decodes tokens one by one, for streaming. What it writes is valid UTF-8: an incomplete character is
// held back, at most three bytes, and what can not become one is written as U+FFFD. All it writes, with Flush
// at the end, is what Decode returns for the same ids. It belongs to one goroutine.
type Decoder struct {
	t       *Tokenizer
	skip    bool
	strip   bool // drop a space if it comes next
	held    [utf8.UTFMax]byte
	numHeld int
}

// NewDecoder returns a Decoder for the tokens of one text.
func (t *Tokenizer) NewDecoder(o DecoderOptions) *Decoder {
	d := t.decoder(o)
	return &d
}

func (t *Tokenizer) decoder(o DecoderOptions) Decoder {
	strip := !o.Continuation && t.sentence != nil && t.sentence.stripFirst
	return Decoder{t: t, skip: o.SkipSpecial, strip: strip}
}

// Decode returns the text of ids. Unknown ids add nothing.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	d := t.decoder(DecoderOptions{SkipSpecial: skipSpecial})
	text := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		text = d.Append(text, id)
	}
	return string(d.Flush(text))
}

// Append appends the text that id completes.
func (d *Decoder) Append(dst []byte, id int32) []byte {
	t := d.t
	if !t.has(id, flagKnown) || d.skip && t.flags[id]&flagSpecial != 0 {
		return dst
	}
	text := t.TokenText(id)
	// The first token that writes something decides, be it a special one.
	if d.strip && text != "" {
		d.strip = false
		text = strings.TrimPrefix(text, " ")
	}
	if d.numHeld == 0 && t.flags[id]&flagASCII != 0 {
		return append(dst, text...)
	}
	for len(text) > 0 {
		if d.numHeld > 0 {
			var used int
			dst, used = d.complete(dst, text)
			text = text[used:]
			continue
		}
		n, ok := scanRune(text)
		switch {
		case ok:
			dst = append(dst, text[:n]...)
		// The token ends inside a character: the next one may complete it.
		case n == len(text) && incomplete(text):
			d.numHeld = copy(d.held[:], text)
		default:
			dst = d.replace(dst, n)
		}
		text = text[n:]
	}
	return dst
}

// complete tries the held bytes with the next byte of text, and returns how many bytes of text it used.
func (d *Decoder) complete(dst []byte, text string) ([]byte, int) {
	d.held[d.numHeld] = text[0]
	size, lo, hi := leadByte(d.held[0])
	if d.numHeld > 1 {
		lo, hi = 0x80, 0xBF
	}
	// This byte does not go on: the held ones are lost, and it is looked at anew.
	if text[0] < lo || text[0] > hi {
		return d.Flush(dst), 0
	}
	d.numHeld++
	if d.numHeld == size {
		dst = append(dst, d.held[:size]...)
		d.numHeld = 0
	}
	return dst, 1
}

// Flush appends what the held bytes stand for when no more follow: U+FFFD, or nothing if none are held.
func (d *Decoder) Flush(dst []byte) []byte {
	if d.numHeld > 0 {
		dst = d.replace(dst, d.numHeld)
		d.numHeld = 0
	}
	return dst
}

// replace appends U+FFFD for n bytes that are the start of a character: one in byte-level vocabularies, one for
// each byte in SentencePiece style, as the reference decoders of the two write them.
func (d *Decoder) replace(dst []byte, n int) []byte {
	if d.t.sentence == nil {
		n = 1
	}
	for range n {
		dst = append(dst, "\uFFFD"...)
	}
	return dst
}

// incomplete reports whether s, the start of a character, lacks only bytes behind it.
func incomplete(s string) bool {
	size, _, _ := leadByte(s[0])
	return len(s) < size
}
