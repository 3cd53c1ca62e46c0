package tokenizer

import (
	"fmt"
	"strings"
)

// patternGPT2 is the pattern built into the ByteLevel pre-tokenizer.
const patternGPT2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`

// Patterns of the models that GGUF files name by their pre-tokenizer.
const (
	patternLlama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen2  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen35 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// contractions is how patterns without (?i:…) spell ruleContraction: seven alternatives in a row.
const contractions = `'s|'t|'re|'ve|'m|'ll|'d`

// marks says what an alternative takes a mark for.
type marks uint8

const (
	marksUnseen marks = iota
	marksOther
	marksLetter
)

// alternatives are the parts that patterns are made of, with the rule for each. A table of parts also covers
// patterns that nobody has listed as a whole; a part that is not here is an error that quotes it.
var alternatives = map[string]struct {
	rule  rule
	marks marks
}{
	`(?i:` + contractions + `)`:       {rule{kind: ruleContraction, fold: true}, marksUnseen},
	`'(?i:[sdmt]|ll|ve|re)`:           {rule{kind: ruleContraction, fold: true}, marksUnseen},
	`(?:` + contractions + `)`:        {rule{kind: ruleContraction}, marksUnseen},
	`'(?:[sdmt]|ll|ve|re)`:            {rule{kind: ruleContraction}, marksUnseen},
	`\p{L}+`:                          {rule{kind: ruleWord}, marksOther},
	` ?\p{L}+`:                        {rule{kind: ruleWord, lead: leadSpace}, marksOther},
	`[^\r\n\p{L}\p{N}]?\p{L}+`:        {rule{kind: ruleWord, lead: leadAny}, marksOther},
	`[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+`: {rule{kind: ruleWord, lead: leadAny}, marksLetter},
	`\p{N}`:                           {rule{kind: ruleNumber, limit: 1}, marksUnseen},
	`\p{N}{1,3}`:                      {rule{kind: ruleNumber, limit: 3}, marksUnseen},
	`\p{N}+`:                          {rule{kind: ruleNumber}, marksUnseen},
	` ?\p{N}+`:                        {rule{kind: ruleNumber, lead: leadSpace}, marksUnseen},
	`[^\s\p{L}\p{N}]+`:                {rule{kind: rulePunct}, marksOther},
	` ?[^\s\p{L}\p{N}]+`:              {rule{kind: rulePunct, lead: leadSpace}, marksOther},
	` ?[^\s\p{L}\p{N}]+[\r\n]*`:       {rule{kind: rulePunct, lead: leadSpace, newlines: true}, marksOther},
	` ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*`:  {rule{kind: rulePunct, lead: leadSpace, newlines: true}, marksLetter},
	`\s*[\r\n]+`:                      {rule{kind: ruleNewlines}, marksUnseen},
	`\s+(?!\S)`:                       {rule{kind: ruleTrailing}, marksUnseen},
	`\s+`:                             {rule{kind: ruleSpaces}, marksUnseen},
}

// parsePattern turns a pre-tokenizer's regular expression into rules.
func parsePattern(pattern string) (*splitRules, error) {
	text := pattern
	if rest, ok := strings.CutPrefix(text, contractions+"|"); ok {
		text = `(?:` + contractions + `)|` + rest
	}
	s := &splitRules{}
	var seen marks
	takes := map[ruleKind]bool{} // a character that no rule takes would be a piece of its own to a regular expression
	for _, part := range splitAlternatives(text) {
		a, ok := alternatives[part]
		if !ok {
			return nil, fmt.Errorf("pattern alternative %q is not supported", part)
		}
		if a.marks != marksUnseen {
			if seen != marksUnseen && seen != a.marks {
				return nil, fmt.Errorf("pattern takes marks for letters in one alternative only: %q", part)
			}
			seen = a.marks
		}
		takes[a.rule.kind] = true
		s.rules = append(s.rules, a.rule)
	}
	if !takes[ruleWord] || !takes[ruleNumber] || !takes[rulePunct] || !takes[ruleSpaces] {
		return nil, fmt.Errorf("pattern %.200q does not take every character", pattern)
	}
	s.markLetter = seen == marksLetter
	s.near = nearForm(s.rules)
	return s, nil
}

// mustPattern is parsePattern for the constants above.
func mustPattern(pattern string) splitRules {
	s, err := parsePattern(pattern)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return *s
}

// splitAlternatives splits at each | outside parentheses and brackets.
func splitAlternatives(pattern string) []string {
	var parts []string
	depth, from := 0, 0
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '\\':
			i++
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		case '|':
			if depth == 0 {
				parts = append(parts, pattern[from:i])
				from = i + 1
			}
		}
	}
	return append(parts, pattern[from:])
}
