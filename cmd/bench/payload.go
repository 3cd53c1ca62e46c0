package bench

import (
	"encoding/json"
	"fmt"
	"maps"
)

// prompt is one request of a dataset.
type prompt struct {
	text   string
	input  int // tokens as the dataset wants them; the server's usage has the last word
	output int // max_tokens
}

// payload returns the body of a request, with the fields that vLLM's client
// sends, explicit nulls and the list of content parts included.
func (o *Options) payload(p prompt) ([]byte, error) {
	body := map[string]any{
		"model":          o.Model,
		"stream":         true,
		"stream_options": map[string]any{"include_usage": true},
	}
	if o.chat() {
		body["messages"] = []any{map[string]any{
			"role": "user", "content": []any{map[string]any{"type": "text", "text": p.text}},
		}}
		body["max_completion_tokens"] = p.output
		if o.Logprobs != nil {
			body["logprobs"], body["top_logprobs"] = true, *o.Logprobs
		}
	} else {
		body["prompt"] = p.text
		body["max_tokens"] = p.output
		body["repetition_penalty"] = 1.0
		body["logprobs"] = o.Logprobs
	}
	if o.IgnoreEOS {
		body["ignore_eos"] = true
	}
	for name, v := range map[string]*float64{
		"temperature": o.Temperature, "top_p": o.TopP, "min_p": o.MinP, "repetition_penalty": o.RepetitionPenalty,
	} {
		if v != nil {
			body[name] = *v
		}
	}
	if o.TopK != nil {
		body["top_k"] = *o.TopK
	}
	maps.Copy(body, o.ExtraBody)
	b, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("bench: request body: %w", err)
	}
	return b, nil
}
