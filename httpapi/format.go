package httpapi

import (
	"strings"
	"unicode/utf8"

	"waybill/actors"
)

// chatFormat formats /v1/chat/completions.
type chatFormat struct{}

func (chatFormat) idPrefix() string { return "chatcmpl-" }

func (chatFormat) object(stream bool) string {
	if stream {
		return "chat.completion.chunk"
	}
	return "chat.completion"
}

func (chatFormat) promptOnTop() bool { return true }

// appendChoice appends the delta. The role rides with the first one: no event
// goes out before there is text or a finish.
func (chatFormat) appendChoice(dst []byte, text []byte, first, finish bool) []byte {
	dst = append(dst, `"delta":{`...)
	if first {
		dst = append(dst, `"role":"assistant",`...)
	}
	if !finish {
		dst = append(dst, `"content":`...)
		dst = appendString(dst, text)
	}
	return append(dst, '}')
}

// chatToken is an entry of logprobs.content.
type chatToken struct {
	Token   string      `json:"token"`
	Logprob float64     `json:"logprob"`
	Bytes   []int       `json:"bytes"`
	Top     []chatToken `json:"top_logprobs,omitempty"`
}

// chatToken describes one token. A token may be part of a character: its name
// then holds U+FFFD, and its bytes tell what it is.
func (a *answer) chatToken(id int32, logprob float32) chatToken {
	t := chatToken{Token: strings.ToValidUTF8(a.tokenText(id), "\ufffd"), Logprob: finite(logprob), Bytes: []int{}}
	for _, c := range []byte(a.engine.TokenText(id)) {
		t.Bytes = append(t.Bytes, int(c))
	}
	return t
}

// finite replaces minus infinity, which JSON cannot hold, by vLLM's -9999.
func finite(logprob float32) float64 { return max(float64(logprob), -9999) }

func (chatFormat) logprobs(a *answer, tokens []actors.TokenLogprobs, offset int) (any, int) {
	content := make([]any, 0, len(tokens))
	for i := range tokens {
		t := a.chatToken(tokens[i].ID, tokens[i].Logprob)
		top := make([]chatToken, 0, len(tokens[i].Top))
		for _, o := range tokens[i].Top {
			top = append(top, a.chatToken(o.ID, o.Logprob))
		}
		content = append(content, struct {
			chatToken
			Top []chatToken `json:"top_logprobs"`
		}{t, top})
	}
	return map[string]any{"content": content}, offset
}

// chatChoice is a collected choice.
type chatChoice struct {
	Index        int         `json:"index"`
	Message      chatMessage `json:"message"`
	Logprobs     any         `json:"logprobs"`
	FinishReason string      `json:"finish_reason"`
	StopReason   any         `json:"stop_reason"`
	TokenIDs     []int32     `json:"token_ids,omitempty"`
}

type chatMessage struct {
	Role    string  `json:"role"`
	Content string  `json:"content"`
	Refusal *string `json:"refusal"`
}

func (f chatFormat) choice(a *answer, index int, c *actors.Choice) any {
	o := chatChoice{
		Index: index, Message: chatMessage{Role: "assistant", Content: string(c.Text)},
		FinishReason: c.Finish.String(), StopReason: stopReason(c),
	}
	if a.logprobs {
		o.Logprobs, _ = f.logprobs(a, c.Logprobs, 0)
	}
	if a.returnIDs {
		o.TokenIDs = c.IDs
	}
	return o
}

// promptLogprobs returns vLLM's prompt_logprobs: per prompt token a map from id
// to its logprob, null for the first; nil if not asked for.
func (a *answer) promptLogprobs(c *actors.Choice) any {
	if len(c.PromptLogprobs) == 0 {
		return nil
	}
	type entry struct {
		Logprob float64 `json:"logprob"`
		Rank    int     `json:"rank"`
		Text    string  `json:"decoded_token"`
	}
	out := make([]map[string]entry, len(c.PromptLogprobs))
	for i, t := range c.PromptLogprobs {
		if t.Missing {
			continue
		}
		out[i] = map[string]entry{}
		for rank, o := range t.Top {
			out[i][itoa(int(o.ID))] = entry{finite(o.Logprob), rank + 1, strings.ToValidUTF8(a.engine.TokenText(o.ID), "\ufffd")}
		}
		out[i][itoa(int(t.ID))] = entry{finite(t.Logprob), t.Rank, strings.ToValidUTF8(a.engine.TokenText(t.ID), "\ufffd")}
	}
	return out
}

// completionsFormat formats /v1/completions.
type completionsFormat struct{}

func (completionsFormat) idPrefix() string { return "cmpl-" }

func (completionsFormat) object(bool) string { return "text_completion" }

func (completionsFormat) promptOnTop() bool { return false }

func (completionsFormat) appendChoice(dst []byte, text []byte, _, _ bool) []byte {
	dst = append(dst, `"text":`...)
	return appendString(dst, text)
}

// completionLogprobs is the value of logprobs: one entry per token in each list.
type completionLogprobs struct {
	TextOffset    []int                `json:"text_offset"`
	TokenLogprobs []*float64           `json:"token_logprobs"`
	Tokens        []string             `json:"tokens"`
	TopLogprobs   []map[string]float64 `json:"top_logprobs"`
}

func (completionsFormat) logprobs(a *answer, tokens []actors.TokenLogprobs, offset int) (any, int) {
	v := completionLogprobs{
		TextOffset: []int{}, TokenLogprobs: []*float64{}, Tokens: []string{}, TopLogprobs: []map[string]float64{},
	}
	for i := range tokens {
		t := &tokens[i]
		name := strings.ToValidUTF8(a.tokenText(t.ID), "\ufffd")
		v.TextOffset = append(v.TextOffset, offset)
		v.Tokens = append(v.Tokens, name)
		// Exact where tokens are whole characters; each byte of a cut one counts
		// as one, as clients add names up.
		offset += utf8.RuneCountInString(a.engine.TokenText(t.ID))
		if t.Missing {
			v.TokenLogprobs = append(v.TokenLogprobs, nil)
			v.TopLogprobs = append(v.TopLogprobs, nil)
			continue
		}
		p := finite(t.Logprob)
		v.TokenLogprobs = append(v.TokenLogprobs, &p)
		// Different tokens may share a name; the likelier comes first and stays.
		top := map[string]float64{}
		for _, o := range t.Top {
			if n := strings.ToValidUTF8(a.tokenText(o.ID), "\ufffd"); !has(top, n) {
				top[n] = finite(o.Logprob)
			}
		}
		// The chosen token is always listed, as one more if it is not among the best.
		if !has(top, name) {
			top[name] = p
		}
		v.TopLogprobs = append(v.TopLogprobs, top)
	}
	return v, offset
}

func has(m map[string]float64, k string) bool { _, ok := m[k]; return ok }

// completionChoice is a collected choice.
type completionChoice struct {
	Index          int     `json:"index"`
	Text           string  `json:"text"`
	Logprobs       any     `json:"logprobs"`
	FinishReason   string  `json:"finish_reason"`
	StopReason     any     `json:"stop_reason"`
	TokenIDs       []int32 `json:"token_ids,omitempty"`
	PromptTokenIDs []int32 `json:"prompt_token_ids,omitempty"`
	PromptLogprobs any     `json:"prompt_logprobs,omitempty"`
}

func (f completionsFormat) choice(a *answer, index int, c *actors.Choice) any {
	o := completionChoice{Index: index, Text: string(c.Text), FinishReason: c.Finish.String(), StopReason: stopReason(c)}
	if a.logprobs {
		all := c.Logprobs
		if a.echo {
			all = append(append([]actors.TokenLogprobs(nil), c.PromptLogprobs...), all...)
		}
		o.Logprobs, _ = f.logprobs(a, all, 0)
	}
	if a.promptTop {
		o.PromptLogprobs = a.promptLogprobs(c)
	}
	if a.returnIDs {
		o.TokenIDs, o.PromptTokenIDs = c.IDs, c.PromptIDs
	}
	return o
}
