package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Byte-level vocabularies write each byte as one printable character: printable Latin-1 bytes stand for
// themselves, the other 68 are written as U+0100 and up, in order (GPT-2, encoder.py, bytes_to_unicode).
var byteChars, charBytes = byteAlphabet()

func byteAlphabet() (chars [256]rune, bytes map[rune]byte) {
	bytes = make(map[rune]byte, 256)
	next := rune(0x100)
	for b := range 256 {
		r := rune(b)
		printable := b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE
		if !printable {
			r = next
			next++
		}
		chars[b] = r
		bytes[r] = byte(b)
	}
	return chars, bytes
}

// fromByteChars returns the bytes that a byte-level vocabulary entry stands for, and false for an entry that
// is not written in the alphabet.
func fromByteChars(piece string) (string, bool) {
	var b strings.Builder
	b.Grow(len(piece))
	for i, r := range piece {
		c, ok := charBytes[r]
		if !ok || r == utf8.RuneError && !strings.HasPrefix(piece[i:], "\uFFFD") {
			return "", false
		}
		b.WriteByte(c)
	}
	return b.String(), true
}

// bytePiece reads a SentencePiece byte token, "<0x0A>".
func bytePiece(piece string) (byte, bool) {
	if len(piece) != 6 || piece[:3] != "<0x" || piece[5] != '>' {
		return 0, false
	}
	hi, ok1 := hexDigit(piece[3])
	lo, ok2 := hexDigit(piece[4])
	return hi<<4 | lo, ok1 && ok2
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
