package tokenizer

import (
	"encoding/json"
	"fmt"
)

// hfComponent is a normalizer, pre-tokenizer, post-processor or decoder: the union of the fields of all kinds
// that are supported.
type hfComponent struct {
	Type string `json:"type"`

	// Sequence
	Normalizers   []hfComponent `json:"normalizers"`
	Pretokenizers []hfComponent `json:"pretokenizers"`
	Processors    []hfComponent `json:"processors"`
	Decoders      []hfComponent `json:"decoders"`

	Prepend string `json:"prepend"` // Prepend
	Pattern struct {
		String *string `json:"String"`
		Regex  *string `json:"Regex"`
	} `json:"pattern"` // Replace, Split
	Content  string `json:"content"`  // Replace, Strip
	Behavior string `json:"behavior"` // Split
	Invert   bool   `json:"invert"`   // Split

	AddPrefixSpace   *bool `json:"add_prefix_space"`  // ByteLevel, Metaspace
	UseRegex         *bool `json:"use_regex"`         // ByteLevel, true if absent
	IndividualDigits bool  `json:"individual_digits"` // Digits

	Replacement   string `json:"replacement"`    // Metaspace
	PrependScheme string `json:"prepend_scheme"` // Metaspace
	Split         *bool  `json:"split"`          // Metaspace, true if absent

	Single        []hfTemplatePart           `json:"single"`         // TemplateProcessing
	SpecialTokens map[string]hfTemplateToken `json:"special_tokens"` // TemplateProcessing
	Start         int                        `json:"start"`          // Strip
	Stop          int                        `json:"stop"`           // Strip
}

type hfTemplatePart struct {
	SpecialToken *struct {
		ID string `json:"id"`
	} `json:"SpecialToken"`
	Sequence *struct {
		ID string `json:"id"`
	} `json:"Sequence"`
}

type hfTemplateToken struct {
	IDs []int32 `json:"ids"`
}

// hfPipeline is what the components come down to.
type hfPipeline struct {
	nfc      bool
	rules    *splitRules
	sentence *sentenceRules
}

// parseComponent reads a component and flattens its sequences.
func parseComponent(what string, raw json.RawMessage) ([]hfComponent, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if len(raw) > maxComponentBytes {
		var t struct {
			Type string `json:"type"`
		}
		// The type only improves the text.
		_ = json.Unmarshal(raw, &t)
		return nil, fmt.Errorf("%s %.50q has %d bytes, limit %d", what, t.Type, len(raw), maxComponentBytes)
	}
	var c hfComponent
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return flatten(c), nil
}

// flatten returns the parts of a sequence, at any depth, in order; encoding/json bounds the depth.
func flatten(c hfComponent) []hfComponent {
	if c.Type != "Sequence" {
		return []hfComponent{c}
	}
	var all []hfComponent
	for _, list := range [][]hfComponent{c.Normalizers, c.Pretokenizers, c.Processors, c.Decoders} {
		for _, part := range list {
			all = append(all, flatten(part)...)
		}
	}
	return all
}

// pipeline reads normalizer, pre-tokenizer and decoder together, as the style of a tokenizer shows in all three.
func (f *hfFile) pipeline() (hfPipeline, error) {
	var p hfPipeline
	spaces, err := f.normalizer(&p)
	if err != nil {
		return p, err
	}
	if err := f.preTokenizer(&p, spaces); err != nil {
		return p, err
	}
	return p, f.decoder(&p)
}

// normalizer reads the normalizer; spaces: it turns spaces into ▁.
func (f *hfFile) normalizer(p *hfPipeline) (spaces bool, err error) {
	parts, err := parseComponent("normalizer", f.Normalizer)
	if err != nil {
		return false, err
	}
	prepend := false
	for _, c := range parts {
		switch {
		case c.Type == "NFC":
			p.nfc = true
		case c.Type == "Prepend" && c.Prepend == "▁":
			prepend = true
		case c.Type == "Replace" && c.Pattern.String != nil && *c.Pattern.String == " " && c.Content == "▁":
			spaces = true
		default:
			return false, fmt.Errorf("normalizer %q with these settings is not supported", c.Type)
		}
	}
	if p.nfc && (spaces || prepend) {
		return false, fmt.Errorf("normalizer: NFC together with ▁ is not supported")
	}
	if prepend && !spaces {
		return false, fmt.Errorf("normalizer: Prepend without Replace is not supported")
	}
	if spaces {
		p.sentence = &sentenceRules{}
		if prepend {
			p.sentence.prefix = prefixAlways
		}
	}
	return spaces, nil
}

// preTokenizer reads the pre-tokenizer: Metaspace, or digits and then one pattern on the way to ByteLevel.
func (f *hfFile) preTokenizer(p *hfPipeline, spaces bool) error {
	parts, err := parseComponent("pre_tokenizer", f.PreTokenizer)
	if err != nil {
		return err
	}
	var pattern string
	var digits, digitRuns, byteLevel bool
	for _, c := range parts {
		switch {
		case c.Type == "Metaspace":
			if err := c.metaspace(p); err != nil {
				return err
			}
		case spaces && c.Type == "Split" && c.Pattern.String != nil && *c.Pattern.String == " ":
			// Gemma splits at spaces after the normalizer has replaced them all: nothing happens.
		case c.Type == "Digits" && pattern == "":
			digits, digitRuns = c.IndividualDigits, !c.IndividualDigits
		case c.Type == "Split" && c.isDigits() && pattern == "":
			digits = true
		case c.Type == "Split" && c.splitsAll() && pattern == "":
			pattern = *c.Pattern.Regex
		case c.Type == "ByteLevel" && (c.AddPrefixSpace == nil || *c.AddPrefixSpace):
			return fmt.Errorf("pre_tokenizer ByteLevel with add_prefix_space is not supported")
		case c.Type == "ByteLevel":
			byteLevel = true
			if c.UseRegex == nil || *c.UseRegex {
				if pattern != "" {
					return fmt.Errorf("pre_tokenizer ByteLevel with use_regex after Split is not supported")
				}
				pattern = patternGPT2
			}
		default:
			return fmt.Errorf("pre_tokenizer %q with these settings is not supported", c.Type)
		}
	}
	if p.sentence != nil {
		if byteLevel || digits || digitRuns || pattern != "" {
			return fmt.Errorf("pre_tokenizer: ▁ together with ByteLevel, Digits or Split is not supported")
		}
		return nil
	}
	if !byteLevel {
		return fmt.Errorf("pre_tokenizer: neither ByteLevel nor ▁ in place of spaces: this kind of vocabulary is not supported")
	}
	if pattern == "" {
		if digits || digitRuns {
			return fmt.Errorf("pre_tokenizer Digits without a pattern is not supported")
		}
		return nil
	}
	if p.rules, err = parsePattern(pattern); err != nil {
		return fmt.Errorf("pre_tokenizer: %w", err)
	}
	p.rules.digits, p.rules.digitRuns = digits, digitRuns
	return nil
}

// isDigits recognises a Split that does what Digits does.
func (c *hfComponent) isDigits() bool {
	return c.Pattern.Regex != nil && *c.Pattern.Regex == `\p{N}` && c.Behavior == "Isolated" && !c.Invert
}

// splitsAll: the pattern takes every character, so that its matches are the pieces either way.
func (c *hfComponent) splitsAll() bool {
	return c.Pattern.Regex != nil && (c.Behavior == "Isolated" || c.Behavior == "Removed" && c.Invert)
}

// metaspace reads the pre-tokenizer that does what Prepend and Replace do as normalizers, and may split at spaces.
func (c *hfComponent) metaspace(p *hfPipeline) error {
	if c.Replacement != "▁" {
		return fmt.Errorf("pre_tokenizer Metaspace with replacement %.20q is not supported", c.Replacement)
	}
	if p.nfc {
		return fmt.Errorf("pre_tokenizer Metaspace after NFC is not supported")
	}
	if p.sentence == nil {
		p.sentence = &sentenceRules{}
	}
	if c.Split == nil || *c.Split {
		p.sentence.cut = cutSpaces
	}
	scheme := c.PrependScheme
	if scheme == "" { // files from before prepend_scheme
		scheme = "always"
		if c.AddPrefixSpace != nil && !*c.AddPrefixSpace {
			scheme = "never"
		}
	}
	switch {
	case p.sentence.prefix == prefixAlways: // the normalizer has put one there
	case scheme == "always":
		p.sentence.prefix = prefixMissing
	case scheme == "first":
		p.sentence.prefix = prefixFirst
	case scheme != "never":
		return fmt.Errorf("pre_tokenizer Metaspace with prepend_scheme %.20q is not supported", scheme)
	}
	return nil
}

// decoder checks that the decoder is the one that belongs to the style, and whether it strips the first space.
func (f *hfFile) decoder(p *hfPipeline) error {
	parts, err := parseComponent("decoder", f.Decoder)
	if err != nil {
		return err
	}
	for _, c := range parts {
		switch {
		case p.sentence == nil && c.Type == "ByteLevel":
		case p.sentence == nil:
			return fmt.Errorf("decoder %q for a byte-level vocabulary is not supported", c.Type)
		case c.Type == "Replace" && c.Pattern.String != nil && *c.Pattern.String == "▁" && c.Content == " ":
		case c.Type == "ByteFallback", c.Type == "Fuse":
		case c.Type == "Metaspace" && c.Replacement == "▁":
			p.sentence.stripFirst = c.PrependScheme != "never" && (c.AddPrefixSpace == nil || *c.AddPrefixSpace)
		case c.Type == "Strip" && c.Content == " " && c.Stop == 0 && c.Start <= 1:
			p.sentence.stripFirst = c.Start == 1
		default:
			return fmt.Errorf("decoder %q with these settings is not supported", c.Type)
		}
	}
	return nil
}

// template returns the ids that the post-processor puts before and after a text.
func (f *hfFile) template(t *Tokenizer) (prefix, suffix []int32, err error) {
	parts, err := parseComponent("post_processor", f.PostProcessor)
	if err != nil {
		return nil, nil, err
	}
	for _, c := range parts {
		switch c.Type {
		case "ByteLevel": // moves offsets only
		case "TemplateProcessing":
			if prefix, suffix, err = c.around(t); err != nil {
				return nil, nil, fmt.Errorf("post_processor TemplateProcessing: %w", err)
			}
		default:
			return nil, nil, fmt.Errorf("post_processor %q is not supported", c.Type)
		}
	}
	return prefix, suffix, nil
}

// around reads TemplateProcessing for a single text: tokens, the text once, tokens.
func (c *hfComponent) around(t *Tokenizer) (prefix, suffix []int32, err error) {
	sequences := 0
	for _, part := range c.Single {
		switch {
		case part.Sequence != nil && part.Sequence.ID == "A":
			sequences++
		case part.SpecialToken != nil:
			for _, id := range c.SpecialTokens[part.SpecialToken.ID].IDs {
				if !t.has(id, flagKnown) {
					return nil, nil, fmt.Errorf("%.50q has id %d, which has no token", part.SpecialToken.ID, id)
				}
				if sequences == 0 {
					prefix = append(prefix, id)
				} else {
					suffix = append(suffix, id)
				}
			}
		default:
			return nil, nil, fmt.Errorf("a part is neither a token nor the text")
		}
	}
	if sequences != 1 {
		return nil, nil, fmt.Errorf("the text occurs %d times", sequences)
	}
	const limit = 16 // BOS, EOS and perhaps a language
	if len(prefix)+len(suffix) > limit {
		return nil, nil, fmt.Errorf("%d tokens around the text, limit %d", len(prefix)+len(suffix), limit)
	}
	return prefix, suffix, nil
}
