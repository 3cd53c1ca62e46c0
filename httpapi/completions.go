package httpapi

import (
	"bytes"
	"encoding/json"
	"encoding/json/jsontext"
	jsonv2 "encoding/json/v2"
	"errors"

	"waybill/actors"
)

// defaultMaxTokens is the output bound of a plain completion that names none,
// as OpenAI documents it.
const defaultMaxTokens = 16

// completionBody is the body of POST /v1/completions. Here logprobs is a number
// of alternatives; in a chat it is a switch.
type completionBody struct {
	commonBody
	Prompt   json.RawMessage `json:"prompt"`
	Echo     *bool           `json:"echo"`
	Logprobs *int            `json:"logprobs"`
}

// request turns the body into a request; its RID, Proto and Places come later.
func (b *completionBody) request(s *Server) (*actors.Request, *answer, *apiError) {
	r := &actors.Request{}
	if err := s.checkModel(b.Model); err != nil {
		return nil, nil, err
	}
	if err := b.fill(r, s.cfg.Engine, s.cfg.Defaults); err != nil {
		return nil, nil, err
	}
	r.Echo = isTrue(b.Echo)
	r.Sampling.Logprobs = actors.NoLogprobs
	if b.Logprobs != nil {
		if *b.Logprobs < 0 || *b.Logprobs > maxLogprobs {
			return nil, nil, badField("logprobs", "logprobs must be between 0 and %d, got %d", maxLogprobs, *b.Logprobs)
		}
		r.Sampling.Logprobs = *b.Logprobs
		if r.Echo {
			// The prompt is part of the text, so its tokens are described as well:
			// that is how clients score a text.
			r.PromptLogprobs, r.PromptTop = true, max(r.PromptTop, *b.Logprobs)
		}
	}
	// A bound that the client named and that does not fit is its error; one that
	// it did not name is not.
	r.MaxTokens, r.FitMaxTokens = defaultMaxTokens, true
	if b.MaxTokens != nil {
		r.MaxTokens, r.FitMaxTokens = *b.MaxTokens, false
	}
	if r.MaxTokens < 0 || r.MaxTokens == 0 && !r.Echo {
		return nil, nil, badField("max_tokens", "max_tokens must be at least 1 (0 only with echo), got %d", r.MaxTokens)
	}
	if r.Sampling.MinTokens > r.MaxTokens {
		return nil, nil, badField("min_tokens", "min_tokens is %d, more than max_tokens %d", r.Sampling.MinTokens, r.MaxTokens)
	}
	// Special tokens are recognised in a plain prompt: who writes one writes the
	// whole model input, as with a template rendered by the client.
	addSpecial := b.AddSpecialTokens == nil || *b.AddSpecialTokens
	prompts, err := decodePrompts(b.Prompt, s.cfg.Engine.VocabSize(), addSpecial)
	if err != nil {
		return nil, nil, err
	}
	r.Prompts = prompts
	a := newAnswer(s, r, &b.commonBody, completionsFormat{})
	for i := range prompts {
		a.held += int64(len(prompts[i].Text) + 4*len(prompts[i].IDs))
	}
	return r, a, nil
}

// decodePrompts reads prompt: a string, a list of strings, ids, or a list of
// lists of ids. The first character inside says which.
func decodePrompts(raw json.RawMessage, vocab int, addSpecial bool) ([]actors.Prompt, *apiError) {
	enc := actors.EncodeOptions{AddSpecial: addSpecial, ParseSpecial: true}
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return nil, badField("prompt", "prompt is missing")
	}
	wrong := badField("prompt", "prompt must be a string, a list of strings, a list of token ids, or a list of such lists, and not empty")
	if raw[0] == '"' {
		var text string
		if jsonv2.Unmarshal(raw, &text) != nil {
			return nil, wrong
		}
		return []actors.Prompt{{Text: text, Encode: enc}}, nil
	}
	if raw[0] != '[' {
		return nil, wrong
	}
	var out []actors.Prompt
	one := func(v jsontext.Value) error {
		p := actors.Prompt{Text: "", Encode: enc}
		err := jsonv2.Unmarshal(v, &p.Text)
		if v.Kind() != '"' { // a null would be read as an empty string
			err = wrong
		}
		out = append(out, p)
		return err
	}
	switch inside := bytes.TrimLeft(raw[1:], " \t\r\n"); inside[0] {
	case '"':
	case '[':
		one = func(v jsontext.Value) error {
			var l idList
			if jsonv2.Unmarshal(v, &l) != nil {
				return wrong
			}
			if len(l) == 0 {
				return badField("prompt", "prompt %d is not a list of token ids, or is empty", len(out))
			}
			out = append(out, actors.Prompt{IDs: l})
			if err := checkIDs("prompt", l, vocab); err != nil {
				return err
			}
			return nil
		}
	default:
		var ids idList
		if jsonv2.Unmarshal(raw, &ids) != nil || len(ids) == 0 {
			return nil, wrong
		}
		return []actors.Prompt{{IDs: ids}}, checkIDs("prompt", ids, vocab)
	}
	var own *apiError
	switch err := eachElement(raw, maxPrompts, one); {
	case errors.Is(err, errTooMany):
		return nil, badField("prompt", "prompt has more than %d entries", maxPrompts)
	case errors.As(err, &own):
		return nil, own
	case err != nil:
		return nil, wrong
	}
	return out, nil
}
