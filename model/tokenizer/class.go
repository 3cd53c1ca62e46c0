package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// class is what the pre-tokenizer patterns can tell apart about a character.
type class uint8

const (
	classOther  class = iota
	classLetter       // \p{L}
	classNumber       // \p{N}
	classMark         // \p{M}
	classSpace        // \s: the Unicode property White_Space
)

// classTable has the class of every code point below tableSize. Classes above it are looked up in the unicode
// package, which takes some 50 ns instead of 1; nearly all text stays below (the emoji and CJK extension B
// are in planes 1 and 2).
const tableSize = 0x30000

var classTable = buildClassTable()

func buildClassTable() *[tableSize]class {
	t := new([tableSize]class)
	fill := func(table *unicode.RangeTable, c class) {
		set := func(lo, hi, stride uint32) {
			for r := lo; r <= hi && r < tableSize; r += stride {
				t[r] = c
			}
		}
		for _, r := range table.R16 {
			set(uint32(r.Lo), uint32(r.Hi), uint32(r.Stride))
		}
		for _, r := range table.R32 {
			set(r.Lo, r.Hi, r.Stride)
		}
	}
	fill(unicode.L, classLetter)
	fill(unicode.N, classNumber)
	fill(unicode.M, classMark)
	fill(unicode.White_Space, classSpace)
	return t
}

// classOf returns the class of any character.
func classOf(r rune) class {
	switch {
	case uint32(r) < tableSize:
		return classTable[r]
	case unicode.IsLetter(r):
		return classLetter
	case unicode.IsNumber(r):
		return classNumber
	case unicode.IsMark(r):
		return classMark
	}
	return classOther
}

// classAt returns the class and the length in bytes of the character at s[i]; i must be inside s.
func classAt(s string, i int) (class, int) {
	if c := s[i]; c < utf8.RuneSelf {
		return classTable[c], 1
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	return classOf(r), n
}
