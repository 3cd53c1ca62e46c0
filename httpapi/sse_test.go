package httpapi

import (
	"encoding/json"
	"fmt"
	"strings"
)

// event is the JSON of one SSE event, or of a whole collected answer: both
// endpoints, both forms.
type event struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"`
	Model   string       `json:"model"`
	Choices []choiceJSON `json:"choices"`
	Usage   *usageJSON   `json:"usage"`
	Error   *struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    any     `json:"code"`
	} `json:"error"`
	PromptTokenIDs []int32            `json:"prompt_token_ids"`
	PromptLogprobs []json.RawMessage  `json:"prompt_logprobs"`
	Timings        map[string]float64 `json:"timings"`
}

type messageJSON struct {
	Role    *string `json:"role"`
	Content *string `json:"content"`
}

type choiceJSON struct {
	Index          int             `json:"index"`
	Text           *string         `json:"text"`
	Delta          *messageJSON    `json:"delta"`
	Message        *messageJSON    `json:"message"`
	Logprobs       json.RawMessage `json:"logprobs"`
	FinishReason   *string         `json:"finish_reason"`
	StopReason     any             `json:"stop_reason"`
	TokenIDs       []int32         `json:"token_ids"`
	PromptTokenIDs []int32         `json:"prompt_token_ids"`
}

type usageJSON struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	Details    struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// content returns the text that a choice carries, wherever it stands.
func (c *choiceJSON) content() string {
	for _, s := range []*string{c.Text} {
		if s != nil {
			return *s
		}
	}
	for _, m := range []*messageJSON{c.Delta, c.Message} {
		if m != nil && m.Content != nil {
			return *m.Content
		}
	}
	return ""
}

// splitEvents cuts a stream into events and checks its frame: each event is
// "data: ", one line, a blank line; [DONE] comes once and last. Comments are
// returned apart.
func splitEvents(body string) (events []string, comments int, err error) {
	rest := body
	done := false
	for rest != "" {
		e, after, ok := strings.Cut(rest, "\n\n")
		if !ok {
			return nil, 0, fmt.Errorf("the stream ends inside an event: %q", rest)
		}
		rest = after
		if strings.HasPrefix(e, ":") && !strings.Contains(e, "\n") {
			comments++
			continue
		}
		data, ok := strings.CutPrefix(e, "data: ")
		switch {
		case !ok || strings.Contains(data, "\n"):
			return nil, 0, fmt.Errorf("not one data line: %q", e)
		case done:
			return nil, 0, fmt.Errorf("an event behind [DONE]: %q", e)
		case data == "[DONE]":
			done = true
		default:
			events = append(events, data)
		}
	}
	if !done {
		return nil, 0, fmt.Errorf("no [DONE] in %q", body)
	}
	return events, comments, nil
}

// events parses a streamed reply.
func (r *reply) events() []event {
	r.t.Helper()
	if r.status != 200 || !strings.HasPrefix(r.header["content-type"], "text/event-stream") {
		r.t.Fatalf("status %d, type %q: %s", r.status, r.header["content-type"], r.body)
	}
	list, _, err := splitEvents(r.text())
	if err != nil {
		r.t.Fatal(err)
	}
	out := make([]event, len(list))
	for i, l := range list {
		if err := json.Unmarshal([]byte(l), &out[i]); err != nil {
			r.t.Fatalf("event %q: %v", l, err)
		}
	}
	return out
}

// answer parses a collected reply.
func (r *reply) answer() event {
	r.t.Helper()
	var e event
	if r.status != 200 || r.header["content-type"] != "application/json" {
		r.t.Fatalf("status %d, type %q: %s", r.status, r.header["content-type"], r.body)
	}
	if err := json.Unmarshal(r.body, &e); err != nil {
		r.t.Fatalf("answer %s: %v", r.body, err)
	}
	return e
}

// failure parses an error reply and checks its shape.
func (r *reply) failure(status int) event {
	r.t.Helper()
	var e event
	if err := json.Unmarshal(r.body, &e); err != nil || r.status != status || r.header["content-type"] != "application/json" {
		r.t.Fatalf("status %d, want %d: type %q, body %s (%v)", r.status, status, r.header["content-type"], r.body, err)
	}
	if e.Error == nil || e.Error.Message == "" || e.Error.Type == "" || e.Error.Code == nil || !strings.Contains(r.text(), `"param":`) {
		r.t.Fatalf("the error lacks message, type, param or code: %s", r.body)
	}
	return e
}

// joined is what a stream says about one choice, put together.
type joined struct {
	text, finish string
	stop         any
	ids          []int32
	finishes     int
	roles        int
}

// join puts the choices of a stream together.
func join(events []event) map[int]*joined {
	out := map[int]*joined{}
	for i := range events {
		for k := range events[i].Choices {
			c := &events[i].Choices[k]
			j := out[c.Index]
			if j == nil {
				j = &joined{}
				out[c.Index] = j
			}
			j.text += c.content()
			j.ids = append(j.ids, c.TokenIDs...)
			if c.Delta != nil && c.Delta.Role != nil {
				j.roles++
			}
			if c.FinishReason != nil {
				j.finish, j.stop = *c.FinishReason, c.StopReason
				j.finishes++
			}
		}
	}
	return out
}
