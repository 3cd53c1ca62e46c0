package chat

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"waybill/model/tokenizer"
)

// knownRoles are the roles that templates build control tokens from ('<|' + role + '|>'). Any other role a
// client sends is protected as a whole.
var knownRoles = []string{
	"system", "user", "assistant", "tool", "developer", "function", "ipython", "observation", "model", "context",
	"documents", "control",
}

// guard replaces characters by reserved ones and back. A reserved character r stands for one other character,
// whatever it is next to; escape+r stands for r itself.
type guard struct {
	protect  map[rune]rune // character → reserved
	original map[rune]rune // reserved → character; escape and mark are absent
	escape   rune
	mark     rune // where a final message is to be continued

	specials *trie // forward: also knows their proper prefixes
	reversed *trie // backward: their proper suffixes
	// unwritten: control tokens that the template has no business writing, as they are neither in its source nor
	// made of a known role.
	unwritten map[string]bool
}

// firstReserved is where reserved characters are taken from: plane 15, private use.
const firstReserved = 0xF0000

func newGuard(source, bos, eos string, specials []string) (*guard, error) {
	g := &guard{
		protect: map[rune]rune{}, original: map[rune]rune{},
		specials: newTrie(), reversed: newTrie(), unwritten: map[string]bool{},
	}
	taken := source + bos + eos + strings.Join(specials, "")
	// Characters that the template itself uses can not be told from reserved ones afterwards.
	next := rune(firstReserved)
	reserve := func() rune {
		for strings.ContainsRune(taken, next) {
			next++
		}
		next++
		return next - 1
	}
	g.escape, g.mark = reserve(), reserve()
	// Word characters are for unknown roles; the rest is what control tokens are made of.
	for _, r := range "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-" + strings.Join(specials, "") {
		if _, ok := g.protect[r]; !ok {
			to := reserve()
			g.protect[r], g.original[to] = to, r
		}
	}
	if next >= 0xFFFFE {
		return nil, fmt.Errorf("control tokens have too many different characters")
	}
	for _, s := range specials {
		if !utf8.ValidString(s) {
			return nil, fmt.Errorf("control token %q is not valid UTF-8", s)
		}
		g.specials.insert(s)
		g.reversed.insert(reverse(s))
		if !strings.Contains(source, s) && !strings.Contains(bos, s) && !strings.Contains(eos, s) && !holdsRole(s, source) {
			g.unwritten[s] = true
		}
	}
	return g, nil
}

// holdsRole reports whether the template may put the token together around a known role.
func holdsRole(special, source string) bool {
	for _, role := range knownRoles {
		before, after, ok := strings.Cut(special, role)
		if ok && strings.Contains(source, before) && strings.Contains(source, after) {
			return true
		}
	}
	return false
}

// text protects a client's string; found: it held a control token.
func (g *guard) text(s string) (protected string, found bool) {
	var out strings.Builder
	for from := 0; ; {
		at, end := g.specials.find(s, from)
		g.segment(&out, s[from:at])
		if at == len(s) {
			return out.String(), found
		}
		g.all(&out, s[at:end])
		from, found = end, true
	}
}

// segment protects the ends of a stretch that holds no control token: what could be the rest of one at its
// start, and the beginning of one at its end. White space around is passed over, as templates trim it away.
func (g *guard) segment(out *strings.Builder, s string) {
	core := strings.TrimSpace(s)
	lead := strings.Index(s, core)
	head := g.reversed.longestEnd(reverse(core[:min(len(core), g.reversed.depth)]))
	tail := g.specials.longestEnd(core)
	// Both may claim the same characters, or all of them.
	if head+tail >= len(core) {
		head, tail = len(core), 0
	}
	g.escaped(out, s[:lead])
	g.all(out, core[:head])
	g.escaped(out, core[head:len(core)-tail])
	g.all(out, core[len(core)-tail:])
	g.escaped(out, s[lead+len(core):])
}

// all protects every character that has a reserved one.
func (g *guard) all(out *strings.Builder, s string) {
	for _, r := range s {
		if to, ok := g.protect[r]; ok {
			r = to
		} else if g.reserved(r) {
			out.WriteRune(g.escape)
		}
		out.WriteRune(r)
	}
}

// escaped copies s, with reserved characters escaped.
func (g *guard) escaped(out *strings.Builder, s string) {
	if !strings.Contains(s, "\xf3") { // the first byte of all of plane 15
		out.WriteString(s)
		return
	}
	for _, r := range s {
		if g.reserved(r) {
			out.WriteRune(g.escape)
		}
		out.WriteRune(r)
	}
}

func (g *guard) reserved(r rune) bool {
	_, ok := g.original[r]
	return ok || r == g.escape || r == g.mark
}

// role protects a role: a known one passes as it is.
func (g *guard) role(s string) string {
	for _, known := range knownRoles {
		if s == known {
			return s
		}
	}
	var out strings.Builder
	g.all(&out, s)
	return out.String()
}

// restore turns reserved characters back and returns the ranges where they were.
func (g *guard) restore(s string) (string, []tokenizer.Span) {
	if !strings.Contains(s, "\xf3") {
		return s, nil
	}
	var out strings.Builder
	out.Grow(len(s))
	var spans []tokenizer.Span
	escaped := false
	for _, r := range s {
		to, ok := g.original[r]
		switch {
		case escaped && g.reserved(r):
			out.WriteRune(r)
			escaped = false
		case r == g.escape:
			escaped = true
		case r == g.mark: // left by a template that wrote the last message twice
		case ok:
			from := out.Len()
			out.WriteRune(to)
			if n := len(spans); n > 0 && spans[n-1].End == from {
				spans[n-1].End = out.Len()
			} else {
				spans = append(spans, tokenizer.Span{Start: from, End: out.Len()})
			}
		default:
			out.WriteRune(r)
			escaped = false
		}
	}
	return out.String(), spans
}

// close adds a span for each control token that stands in the text although the template does not write it: one
// put together by template and client, such as '<|' + name + '|>' with the name "endoftext". The spans are in
// order and disjoint.
func (g *guard) close(text string, spans []tokenizer.Span) []tokenizer.Span {
	if len(g.unwritten) == 0 {
		return spans
	}
	var all []tokenizer.Span
	next := 0
	for from := 0; ; {
		at, end := g.specials.find(text, from)
		for next < len(spans) && spans[next].Start < end {
			all = append(all, spans[next])
			next++
		}
		if at == len(text) {
			return append(all, spans[next:]...)
		}
		// A token that overlaps a span is none. The search goes on inside it, as the tokenizer's does.
		if n := len(all); n > 0 && all[n-1].End > at {
			from = at + 1
			continue
		}
		if g.unwritten[text[at:end]] {
			all = append(all, tokenizer.Span{Start: at, End: end})
		}
		from = end
	}
}

// cutAtMark ends the text where the final message was to be continued. The mark was written as mark and space:
// if the space is gone, the template trims contents, and the message's own white space goes as well.
func (g *guard) cutAtMark(s string) (string, error) {
	at, escaped := -1, false
	for i, r := range s {
		if r == g.mark && !escaped {
			at = i
		}
		escaped = r == g.escape && !escaped
	}
	if at < 0 {
		return "", inputErrorf("continue_final_message: the chat template does not write the final message")
	}
	if strings.HasPrefix(s[at+utf8.RuneLen(g.mark):], " ") {
		return s[:at], nil
	}
	return strings.TrimRight(s[:at], " \t\r\n"), nil
}
