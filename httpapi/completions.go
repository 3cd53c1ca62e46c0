package httpapi

import (
	"bytes"
	"encoding/json"

	"waybill/actors"
)

// defaultMaxTokens is the output bound of a plain completion that names none,
// as OpenAI documents it.
const defaultMaxTokens = 16

// completionBody is the body of POST /v1/completions.
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
			r.PromptLogprobs, r.PromptTop = true, *b.Logprobs
		}
	}
	r.MaxTokens = defaultMaxTokens
	if b.MaxTokens != nil {
		r.MaxTokens = *b.MaxTokens
	}
	if r.MaxTokens < 0 || r.MaxTokens == 0 && !r.Echo {
		return nil, nil, badField("max_tokens", "max_tokens must be at least 1 (0 only with echo), got %d", r.MaxTokens)
	}
	if r.Sampling.MinTokens > r.MaxTokens {
		return nil, nil, badField("min_tokens", "min_tokens is %d, more than max_tokens %d", r.Sampling.MinTokens, r.MaxTokens)
	}
	addSpecial := b.AddSpecialTokens == nil || *b.AddSpecialTokens
	prompts, err := decodePrompts(b.Prompt, s.cfg.Engine.VocabSize(), addSpecial)
	if err != nil {
		return nil, nil, err
	}
	r.Prompts = prompts
	return r, newAnswer(s, r, &b.commonBody, completionsFormat{}), nil
}

// decodePrompts reads prompt: a string, a list of strings, ids, or a list of
// lists of ids.
func decodePrompts(raw json.RawMessage, vocab int, addSpecial bool) ([]actors.Prompt, *apiError) {
	enc := actors.EncodeOptions{AddSpecial: addSpecial, ParseSpecial: true}
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return nil, badField("prompt", "prompt is missing")
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []actors.Prompt{{Text: text, Encode: enc}}, nil
	}
	var texts []string
	if json.Unmarshal(raw, &texts) == nil && len(texts) > 0 {
		out := make([]actors.Prompt, len(texts))
		for i, t := range texts {
			out[i] = actors.Prompt{Text: t, Encode: enc}
		}
		return out, checkPrompts(out)
	}
	var ids []int32
	if json.Unmarshal(raw, &ids) == nil && len(ids) > 0 {
		return []actors.Prompt{{IDs: ids}}, checkIDs("prompt", ids, vocab)
	}
	var lists [][]int32
	if json.Unmarshal(raw, &lists) == nil && len(lists) > 0 {
		out := make([]actors.Prompt, len(lists))
		for i, l := range lists {
			if len(l) == 0 {
				return nil, badField("prompt", "prompt %d is an empty list of token ids", i)
			}
			if err := checkIDs("prompt", l, vocab); err != nil {
				return nil, err
			}
			out[i] = actors.Prompt{IDs: l}
		}
		return out, checkPrompts(out)
	}
	return nil, badField("prompt", "prompt must be a string, a list of strings, a list of token ids, or a list of such lists, and not empty")
}

func checkPrompts(p []actors.Prompt) *apiError {
	if len(p) > maxPrompts {
		return badField("prompt", "prompt has %d entries, limit %d", len(p), maxPrompts)
	}
	return nil
}
