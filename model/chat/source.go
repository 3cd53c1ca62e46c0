package chat

import (
	"regexp"
	"strings"
)

// prepare works around a bug of the template library: in `A {{ x }}{%- if … %}` it strips the space before {{.
// The dash has nothing to strip there, so it can go. Line ends are what Jinja makes of them.
var prepareReplacer = strings.NewReplacer("}}{%-", "}}{%", "}}{{-", "}}{{", "\r\n", "\n")

// prepare returns the source in the form that the library renders right.
func prepare(source string) string { return prepareReplacer.Replace(source) }

// tag is a statement or an expression; tests are looked for only there.
var tag = regexp.MustCompile(`(?s)\{%.*?%\}|\{\{.*?\}\}`)

// testedLiteral are the places where a template compares a content with a literal, or cuts it at one.
var testedLiteral = func() []*regexp.Regexp {
	const literal = `('[^'\n]*'|"[^"\n]*")`
	return []*regexp.Regexp{
		regexp.MustCompile(literal + `\s+(?:not\s+)?in\b`),
		regexp.MustCompile(`(?:\.(?:split|rsplit|startswith|endswith|removeprefix|removesuffix|find|rfind|index|count|partition|rpartition|replace)|\|\s*(?:replace|split))\(\s*` + literal),
		regexp.MustCompile(`[=!]=\s*` + literal),
		regexp.MustCompile(literal + `\s*[=!]=`),
	}
}()

// rewriteTests writes the control tokens in such literals in protected form, so that a template that looks for
// </think> in a content finds the client's protected one, and cuts there as it would have.
func rewriteTests(source string, g *guard) string {
	return tag.ReplaceAllStringFunc(source, func(code string) string {
		for _, re := range testedLiteral {
			code = replaceGroup(re, code, func(literal string) string {
				var out strings.Builder
				for from := 0; ; {
					at, end := g.specials.find(literal, from)
					out.WriteString(literal[from:at])
					if at == len(literal) {
						return out.String()
					}
					g.all(&out, literal[at:end])
					from = end
				}
			})
		}
		return code
	})
}

// replaceGroup replaces the first group of every match.
func replaceGroup(re *regexp.Regexp, s string, f func(string) string) string {
	var out strings.Builder
	from := 0
	for _, m := range re.FindAllStringSubmatchIndex(s, -1) {
		out.WriteString(s[from:m[2]])
		out.WriteString(f(s[m[2]:m[3]]))
		from = m[3]
	}
	out.WriteString(s[from:])
	return out.String()
}
