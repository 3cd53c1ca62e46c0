package tokenizer

// shrinkage is how many times fewer bytes normalization may leave of a text. NFC makes one byte of three (the
// Kelvin sign) and one character of at most four, and a ▁ of three bytes becomes a space.
const shrinkage = 4

// MustExceed reports whether text has more than n tokens by its length alone: a token stands for so many bytes
// and no more. It looks at no more than twice as many bytes as n tokens may have; false says nothing.
func (t *Tokenizer) MustExceed(text string, n int) bool {
	longest := t.longest
	normalized := t.nfc || t.sentence != nil
	if normalized {
		longest *= shrinkage
	}
	if longest > len(text)/max(n, 1) || !t.bounded(normalized) { // a product might overflow
		return false
	}
	most := n * longest
	known := 0
	for i := range min(len(text), 2*most) {
		if t.byteIDs[text[i]] >= 0 {
			if known++; known > most {
				return true
			}
		}
	}
	return false
}

// bounded reports whether a token stands for a bounded number of bytes that have one. An added token may take
// all white space beside it. Bytes without a token are left out or share one; where bytes change before they are
// looked up, all must have one.
func (t *Tokenizer) bounded(normalized bool) bool {
	for _, a := range t.added {
		if a.lstrip || a.rstrip {
			return false
		}
	}
	for b, id := range t.byteIDs {
		// The others are in no valid text, and what is not valid is replaced.
		if inText := b < 0xC0 || b > 0xC1 && b < 0xF5; normalized && inText && id < 0 {
			return false
		}
	}
	return true
}
