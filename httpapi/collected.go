package httpapi

import (
	"bytes"
	"encoding/json"

	"waybill/actors"
)

// usageObject is the usage of a collected answer.
type usageObject struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
	Details          struct {
		CachedTokens int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// collected is the body of an answer that is not streamed.
type collected struct {
	ID      string      `json:"id"`
	Object  string      `json:"object"`
	Created int64       `json:"created"`
	Model   string      `json:"model"`
	Choices []any       `json:"choices"`
	Usage   usageObject `json:"usage"`

	PromptTokenIDs []int32         `json:"prompt_token_ids,omitempty"` // chat only
	PromptLogprobs any             `json:"prompt_logprobs,omitempty"`  // chat only
	Timings        json.RawMessage `json:"timings,omitempty"`
}

// collect returns the body of a collected answer.
func (a *answer) collect(choices []actors.Choice, total actors.Usage) []byte {
	c := collected{ID: a.id, Object: a.format.object(false), Created: a.created, Model: a.model}
	for i := range choices {
		c.Choices = append(c.Choices, a.format.choice(a, i, &choices[i]))
	}
	c.Usage = usageObject{PromptTokens: total.Prompt, CompletionTokens: total.Completion, TotalTokens: total.Prompt + total.Completion}
	c.Usage.Details.CachedTokens = total.Cached
	if first := &choices[0]; a.format.promptOnTop() {
		if a.returnIDs {
			c.PromptTokenIDs = first.PromptIDs
		}
		if a.promptTop {
			c.PromptLogprobs = a.promptLogprobs(first)
		}
	}
	if a.timings {
		c.Timings = timingsOf(choices[0].Bill)
	}
	b, err := marshal(c)
	if err != nil {
		panic("BUG: httpapi: an answer does not marshal: " + err.Error())
	}
	return b
}

// marshal encodes v without escaping HTML.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
