package tokenizer

import (
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// composer normalizes a segment to NFC. Text that is NFC already, nearly all, passes through uncopied. The rest
// is composed here and not by x/text: that package bounds runs of combining marks by inserting U+034F after
// 30 of them, which no tokenizer does, and works on such a run in one go.
//
// In slow mode each character is decomposed, marks are collected in a list for each combining class (which sorts
// them, in order of arrival within a class), and at the next starter they are composed in that order (Unicode
// Standard Annex 15, and section 3.11).
type composer struct {
	src  string
	pos  int
	out  strings.Builder
	copy bool // out is in use
	slow int  // compose up to here at least; 0: fast mode

	starter rune         // -1: none yet
	marks   *[256][]rune // after the starter, by combining class
	pending int          // number of marks
	class   int          // flush: class and index of the next mark
	index   int
	kept    []byte // flush: marks that did not combine
	keptAt  int    // class of the last of them
	flushed bool   // marks are in kept
	queue   []rune // decomposed characters not yet taken
}

func (c *composer) begin(src string) {
	*c = composer{src: src, starter: -1, marks: c.marks, kept: c.kept[:0], queue: c.queue[:0]}
}

// step works for some ticks; done: result is the normalized text.
func (c *composer) step(ticks *int) (done bool) {
	for *ticks > 0 {
		switch {
		case len(c.queue) > 0:
			if c.take(c.queue[0], ticks) {
				c.queue = c.queue[:copy(c.queue, c.queue[1:])]
			}
		case c.slow > 0 && c.atBoundary():
			if c.flush(ticks) {
				c.emit()
				c.starter, c.slow = -1, 0
			}
		case c.pos == len(c.src):
			return true
		case c.slow > 0:
			c.feed()
			*ticks -= 20
		default:
			c.fast(ticks)
		}
	}
	return false
}

// result returns the normalized text once step has returned true.
func (c *composer) result() string {
	if c.copy {
		return c.out.String()
	}
	return c.src
}

// atBoundary reports whether slow mode can end before pos.
func (c *composer) atBoundary() bool {
	return c.pos == len(c.src) || c.pos >= c.slow && norm.NFC.PropertiesString(c.src[c.pos:]).BoundaryBefore()
}

// fast passes a chunk through if it is NFC and ends at a boundary, else it starts slow mode for it.
func (c *composer) fast(ticks *int) {
	// The chunk must end where the next character can not combine backwards, else looking at it alone is wrong.
	stop := min(len(c.src), c.pos+256)
	end := stop
	for back := 0; end > c.pos && end < len(c.src) && back < 32; back++ {
		if utf8.RuneStart(c.src[end]) && norm.NFC.PropertiesString(c.src[end:]).BoundaryBefore() {
			break
		}
		end--
	}
	*ticks -= 20 + (stop-c.pos)/4
	boundary := end == len(c.src) ||
		utf8.RuneStart(c.src[end]) && norm.NFC.PropertiesString(c.src[end:]).BoundaryBefore()
	if end > c.pos && boundary && (allInert(c.src[c.pos:end]) || norm.NFC.IsNormalString(c.src[c.pos:end])) {
		if c.copy {
			c.out.WriteString(c.src[c.pos:end])
		}
		c.pos = end
		return
	}
	c.slow = stop
	if !c.copy {
		c.copy = true
		c.out.Grow(len(c.src))
		c.out.WriteString(c.src[:c.pos])
	}
}

// inert has a bit for each character of the basic plane that NFC leaves as it is next to any other of them: it is no mark,
// and neither composes with what comes before it nor decomposes (Unicode Standard Annex 15, "detecting normalization
// forms": quick check yes, class 0). It takes some milliseconds, which only a normalizing tokenizer spends.
var inert = sync.OnceValue(func() *[1 << 16 / 64]uint64 {
	table := new([1 << 16 / 64]uint64)
	for r := rune(0); r < 1<<16; r++ {
		s := string(r)
		if p := norm.NFC.PropertiesString(s); p.BoundaryBefore() && p.CCC() == 0 && norm.NFC.IsNormalString(s) {
			table[r/64] |= 1 << (r % 64)
		}
	}
	return table
})

// allInert reports whether NFC leaves a text as it is because it leaves every character so.
func allInert(s string) bool {
	table := inert()
	for i := 0; i < len(s); {
		if i+8 <= len(s) && load64(s, i)&0x8080808080808080 == 0 {
			i += 8
			continue
		}
		r, n := rune(s[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRuneInString(s[i:])
		}
		if r >= 1<<16 || table[r/64]>>(r%64)&1 == 0 {
			return false
		}
		i += n
	}
	return true
}

// feed decomposes the character at pos.
func (c *composer) feed() {
	// Hangul syllables have no entry and stay whole: compose adds a trailing consonant to one as it does to its parts.
	p := norm.NFC.PropertiesString(c.src[c.pos:])
	n := max(p.Size(), 1)
	if d := p.Decomposition(); d != nil {
		c.queue = append(c.queue, []rune(string(d))...)
	} else {
		r, _ := utf8.DecodeRuneInString(c.src[c.pos:])
		c.queue = append(c.queue, r)
	}
	c.pos += n
}

// take adds a decomposed character; false: call it again, the marks before it are not composed yet.
func (c *composer) take(r rune, ticks *int) bool {
	*ticks -= 15
	var buf [utf8.UTFMax]byte
	class := norm.NFC.Properties(utf8.AppendRune(buf[:0], r)).CCC()
	if class != 0 {
		if c.marks == nil {
			c.marks = new([256][]rune)
		}
		c.marks[class] = append(c.marks[class], r)
		c.pending++
		return true
	}
	if !c.flush(ticks) {
		return false
	}
	// Two starters compose only if nothing is left between them.
	if c.starter >= 0 && len(c.kept) == 0 {
		if both, ok := compose(c.starter, r); ok {
			c.starter, c.flushed = both, false
			return true
		}
	}
	c.emit()
	c.starter = r
	return true
}

// flush composes the marks in the order of their classes with the starter; those that do not combine are kept
// in that order. Two marks of one class block each other.
func (c *composer) flush(ticks *int) bool {
	if c.flushed {
		return true
	}
	// A call does some work even if the ticks are used up, so that a caller with one tick gets on.
	for worked := 0; c.class < 256 && c.pending > 0; worked++ {
		if *ticks <= 0 && worked > 64 {
			return false
		}
		if c.index == len(c.marks[c.class]) {
			c.marks[c.class] = c.marks[c.class][:0]
			c.class, c.index = c.class+1, 0
			continue
		}
		r := c.marks[c.class][c.index]
		c.index++
		*ticks -= 15
		if c.starter >= 0 && (len(c.kept) == 0 || c.keptAt < c.class) {
			if both, ok := compose(c.starter, r); ok {
				c.starter = both
				continue
			}
		}
		c.kept = utf8.AppendRune(c.kept, r)
		c.keptAt = c.class
	}
	c.pending, c.class, c.index, c.flushed = 0, 0, 0, true
	return true
}

// emit writes the starter and its marks.
func (c *composer) emit() {
	if c.starter >= 0 {
		c.out.WriteRune(c.starter)
	}
	c.out.Write(c.kept)
	c.kept, c.flushed = c.kept[:0], false
}

// compose returns the primary composite of two characters, if there is one.
func compose(a, b rune) (rune, bool) {
	var in, out [3 * utf8.UTFMax]byte
	s := norm.NFC.Append(out[:0], utf8.AppendRune(utf8.AppendRune(in[:0], a), b)...)
	r, n := utf8.DecodeRune(s)
	return r, n == len(s)
}
