package chat

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

var (
	firstWord  = regexp.MustCompile(`^\s*(\w+)`)
	recursive  = regexp.MustCompile(`\brecursive\s*$`)
	setTarget  = regexp.MustCompile(`^\s*set\s+[\w.,\s()]+=`)
	replaceArg = regexp.MustCompile(`^\(\s*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\s*,\s*('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\s*[,)]`)
	growing    = regexp.MustCompile(`\breplace\s*\(|\.\s*format\s*\(|\bjoin\b|\|\s*indent\b`)
	// byName finds the ways to a filter or method besides writing it out, and deep
	// indentation of JSON.
	byName = regexp.MustCompile(`(?:\[|\bmap\(|\battr\()\s*['"](?:replace|indent|join|format)['"]|indent\s*=\s*(?:\d\d|[^\d\s])`)
)

// instrument puts the counting calls into a template.
func instrument(source string) (string, error) {
	if len(source) > maxSource {
		return "", fmt.Errorf("the template has %d bytes, limit %d", len(source), maxSource)
	}
	if strings.Contains(source, reserved) {
		return "", fmt.Errorf("the template uses a name that begins with %s", reserved)
	}
	pieces, err := split(source)
	if err != nil {
		return "", err
	}
	// The literal text of a loop's or macro's own body is counted with each pass
	// through it, whatever branches it takes.
	var open []int
	for i := range pieces {
		p := &pieces[i]
		switch p.word {
		case "for", "macro":
			open = append(open, i)
		case "endfor", "endmacro":
			if len(open) > 0 {
				open = open[:len(open)-1]
			}
		case "":
			if len(open) > 0 {
				pieces[open[len(open)-1]].body += len(p.whole)
			}
		}
	}
	var out strings.Builder
	for i := range pieces {
		pieces[i].write(&out)
	}
	return out.String(), nil
}

// split cuts a template into text and tags. Comments and raw blocks count as text.
func split(source string) ([]jinjaTag, error) {
	var out []jinjaTag
	text := func(s string) { out = append(out, jinjaTag{kind: 't', whole: s}) }
	for i := 0; i < len(source); {
		at := i
		for at < len(source) && !(source[at] == '{' && at+1 < len(source) && strings.IndexByte("{%#", source[at+1]) >= 0) {
			at++
		}
		if at > i {
			text(source[i:at])
		}
		if i = at; i == len(source) {
			break
		}
		t, err := readTag(source[i:])
		if err != nil {
			return nil, err
		}
		i += len(t.whole)
		if t.kind == '#' {
			text(t.whole)
			continue
		}
		if err := t.check(); err != nil {
			return nil, err
		}
		out = append(out, t)
		if t.word == "raw" {
			end := strings.Index(source[i:], "endraw")
			open := strings.LastIndex(source[i:i+max(end, 0)], "{%")
			if end < 0 || open < 0 {
				return nil, errors.New("raw without endraw")
			}
			text(source[i : i+open])
			i += open
		}
	}
	return out, nil
}

// jinjaTag is a piece of a template: code, or text.
type jinjaTag struct {
	kind        byte // '{', '%', '#', or 't' for text
	whole, code string
	left, right string // "-", "+" or nothing
	word        string // the first one of a statement; "print" of an expression; "" of text
	body        int    // bytes of text in a loop's or macro's own body
}

// readTag reads the tag that s begins with, as the library does: quotes hide the
// end, and so do open brackets.
func readTag(s string) (t jinjaTag, err error) {
	t.kind = s[1]
	closer := map[byte]string{'{': "}}", '%': "%}", '#': "#}"}[t.kind]
	i := 2
	if i < len(s) && (s[i] == '-' || s[i] == '+') {
		t.left = s[i : i+1]
		i++
	}
	begin, depth := i, 0
	for ; i < len(s); i++ {
		c := s[i]
		if t.kind != '#' && (c == '\'' || c == '"') {
			for i++; i < len(s) && s[i] != c; i++ {
				if s[i] == '\\' {
					i++
				}
			}
			continue
		}
		if depth == 0 {
			if (c == '-' || c == '+') && strings.HasPrefix(s[i+1:], closer) {
				t.right, t.whole = s[i:i+1], s[:i+3]
				return t.named(s[begin:i]), nil
			}
			if strings.HasPrefix(s[i:], closer) {
				t.whole = s[:i+2]
				return t.named(s[begin:i]), nil
			}
		}
		if t.kind == '#' {
			continue
		}
		switch c {
		case '(', '[', '{':
			if depth++; depth > maxBrackets {
				return t, fmt.Errorf("brackets are nested more than %d deep", maxBrackets)
			}
		case ')', ']', '}':
			depth--
		}
	}
	return t, fmt.Errorf("a tag is not closed: %.40q", s)
}

// named returns the tag with its code and its word.
func (t jinjaTag) named(code string) jinjaTag {
	t.code = code
	switch m := firstWord.FindStringSubmatch(code); {
	case t.kind == '{':
		t.word = "print"
	case t.kind == '%' && m != nil:
		t.word = m[1]
	case t.kind == '%':
		t.word = "?"
	}
	return t
}

// check refuses code whose result may be far larger than its operands.
func (t *jinjaTag) check() error {
	code := bare(t.code)
	if t.word == "for" && recursive.MatchString(code) {
		return errors.New("recursive loops are not supported")
	}
	growth := 1 + strings.Count(code, "~") + strings.Count(code, "+")
	if byName.MatchString(t.code) {
		return fmt.Errorf("the template uses a filter in a way whose size has no bound: %.80q", t.code)
	}
	repeats := strings.Count(code, "*")
	for range repeats {
		growth *= repeatGrowth
	}
	for _, at := range growing.FindAllStringIndex(code, -1) {
		name := code[at[0]:at[1]]
		if repeats > 0 || strings.Contains(name, "format") || strings.Contains(name, "indent") {
			return fmt.Errorf("the template uses %s in a way whose size has no bound: %.80q", name, t.code)
		}
		if name == "join" {
			continue
		}
		args := replaceArg.FindStringSubmatch(t.code[at[1]-1:])
		if args == nil {
			return fmt.Errorf("the template replaces something by what is no literal: %.80q", t.code)
		}
		// Replacing nothing puts the new text between all characters.
		old, text := len(args[1])-2, len(args[2])-2
		growth *= max(1, (text+max(old, 1)-1)/max(old, 1))
		if old == 0 {
			growth++
		}
	}
	if growth > maxGrowth {
		return fmt.Errorf("the result of one tag may be %d times as large as its parts, limit %d: %.80q", growth, maxGrowth, t.code)
	}
	return nil
}

// bare returns code with the insides of its strings blanked, byte for byte.
func bare(code string) string {
	out := []byte(code)
	for i := 0; i < len(out); i++ {
		if q := out[i]; q == '\'' || q == '"' {
			for i++; i < len(out) && out[i] != q; i++ {
				if out[i] == '\\' && i+1 < len(out) {
					out[i] = ' '
					i++
				}
				out[i] = ' '
			}
		}
	}
	return string(out)
}

// write writes the tag with its counting calls.
func (t *jinjaTag) write(out *strings.Builder) {
	call := func(left, right, name string) string {
		return "{%" + left + " if " + reserved + name + " %}{% endif " + right + "%}"
	}
	switch {
	case t.word == "print":
		fmt.Fprintf(out, "{{%s %sout(%s) %s}}", t.left, reserved, wrapped(t.code), t.right)
	case t.word == "for":
		// A call behind the tag, with the tag's own mark on the far side: white space is
		// taken off where it was.
		fmt.Fprintf(out, "{%%%s%s%%}%s", t.left, t.code, call("", t.right, fmt.Sprintf("step(%d)", t.body)))
	case t.word == "macro":
		fmt.Fprintf(out, "{%%%s%s%%}%s", t.left, t.code, call("", t.right, fmt.Sprintf("enter(%d)", t.body)))
	case t.word == "endmacro":
		out.WriteString(call(t.left, "", "leave()") + "{%" + t.code + t.right + "%}")
	case t.word == "set" && setTarget.MatchString(t.code):
		at := len(setTarget.FindString(t.code))
		fmt.Fprintf(out, "{%%%s%s %sheld(%s) %s%%}", t.left, t.code[:at], reserved, wrapped(t.code[at:]), t.right)
	default:
		out.WriteString(t.whole)
	}
}

// wrapped returns an expression as one argument: a tuple without brackets gets some.
func wrapped(code string) string {
	depth := 0
	for _, c := range bare(code) {
		switch c {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		case ',':
			if depth == 0 {
				return "(" + code + ")"
			}
		}
	}
	return code
}
