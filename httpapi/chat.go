package httpapi

import (
	"encoding/json"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"math"

	"waybill/actors"
)

// ChatOptions are what a request says about rendering besides its messages.
type ChatOptions struct {
	// AddGenerationPrompt opens the assistant's turn; ContinueFinal leaves the
	// last message open instead.
	AddGenerationPrompt, ContinueFinal bool
	// Kwargs is the JSON object of chat_template_kwargs, or nil.
	Kwargs json.RawMessage
	// Cancelled, if set, says that nobody waits for the text any more.
	Cancelled func() bool
}

// ChatTemplate renders messages. The byte spans it returns are contents in which
// no control token may be recognised. Errors are about the client's messages.
type ChatTemplate interface {
	Render(messages json.RawMessage, o ChatOptions) (text string, plain []actors.Span, err error)
}

// chatBody is the body of POST /v1/chat/completions.
type chatBody struct {
	commonBody
	chatFields
	MaxCompletionTokens *int  `json:"max_completion_tokens"`
	Logprobs            *bool `json:"logprobs"`
	TopLogprobs         *int  `json:"top_logprobs"`
	Echo                *bool `json:"echo"`
}

// chatFields say how messages are rendered; /tokenize shares them.
type chatFields struct {
	Messages            json.RawMessage `json:"messages"`
	AddGenerationPrompt *bool           `json:"add_generation_prompt"`
	ContinueFinal       *bool           `json:"continue_final_message"`
	Kwargs              json.RawMessage `json:"chat_template_kwargs"`
	ChatTemplate        json.RawMessage `json:"chat_template"`
	Documents           json.RawMessage `json:"documents"`
	MMProcessorKwargs   json.RawMessage `json:"mm_processor_kwargs"`
	ReasoningEffort     json.RawMessage `json:"reasoning_effort"`
}

// message is what is checked of a chat message before a place is taken; the
// template sees the raw JSON.
type message struct {
	Role    *string         `json:"role"`
	Content json.RawMessage `json:"content"`
}

// prompt checks the messages and returns what Intake will render.
func (b *chatFields) prompt(s *Server) (actors.Prompt, *apiError) {
	for _, f := range []struct {
		name string
		v    json.RawMessage
	}{{"chat_template", b.ChatTemplate}, {"documents", b.Documents}, {"mm_processor_kwargs", b.MMProcessorKwargs}} {
		if len(f.v) > 0 && string(f.v) != "null" {
			return actors.Prompt{}, badField(f.name, "%s is not supported by this server", f.name)
		}
	}
	if err := checkMessages(b.Messages); err != nil {
		return actors.Prompt{}, err
	}
	if s.cfg.Chat == nil {
		return actors.Prompt{}, badField("messages", "the model has no chat template; use /v1/completions")
	}
	// Exactly one of the two ends: a turn that is opened, or the last message
	// left open.
	o := ChatOptions{
		AddGenerationPrompt: b.AddGenerationPrompt == nil || *b.AddGenerationPrompt,
		ContinueFinal:       isTrue(b.ContinueFinal),
	}
	if o.ContinueFinal {
		if isTrue(b.AddGenerationPrompt) {
			return actors.Prompt{}, badField("continue_final_message", "continue_final_message and add_generation_prompt exclude each other")
		}
		o.AddGenerationPrompt = false
	}
	if len(b.Kwargs) > 0 && string(b.Kwargs) != "null" {
		if b.Kwargs[0] != '{' {
			return actors.Prompt{}, badField("chat_template_kwargs", "chat_template_kwargs must be an object")
		}
		o.Kwargs = b.Kwargs
	}
	messages := b.Messages // a copy already: the body's own memory is reused
	return actors.Prompt{
		Render: func(over func() bool) (string, []actors.Span, error) {
			o.Cancelled = over
			text, plain, err := s.cfg.Chat.Render(messages, o)
			if err != nil {
				err = fmt.Errorf("messages: %w", err)
			}
			return text, plain, err
		},
		Encode: actors.EncodeOptions{ParseSpecial: true},
	}, nil
}

// checkMessages checks the shape of messages.
func checkMessages(raw json.RawMessage) *apiError {
	if len(raw) == 0 || string(raw) == "null" {
		return badField("messages", "messages is missing")
	}
	n := 0
	err := eachElement(raw, maxMessages, func(v jsontext.Value) error {
		var m message
		if v.Kind() != '{' {
			return badField("messages", "messages[%d] must be an object with role and content, not %s", n, found(v.Kind()))
		}
		if json.Unmarshal(v, &m) != nil { // the role is all that may have a wrong type
			return badField("messages", "messages[%d]: role must be a string", n)
		}
		if m.Role == nil || *m.Role == "" {
			return badField("messages", "messages[%d] has no role", n)
		}
		if err := checkContent(m.Content); err != nil {
			return badField("messages", "messages[%d]: %v", n, err)
		}
		n++
		return nil
	})
	var own *apiError
	switch {
	case errors.Is(err, errTooMany):
		return badField("messages", "messages has more than %d entries", maxMessages)
	case errors.As(err, &own):
		return own
	case err != nil:
		return badField("messages", "messages must be a list of objects with role and content, not %s", found(jsontext.Value(raw).Kind()))
	case n == 0:
		return badField("messages", "messages is empty")
	}
	return nil
}

// checkContent accepts null, a string, or a list of text parts.
func checkContent(raw json.RawMessage) error {
	if len(raw) == 0 || string(raw) == "null" || raw[0] == '"' {
		return nil
	}
	wrong := errors.New("content must be a string, null, or a list of parts")
	if raw[0] != '[' {
		return wrong
	}
	i := -1
	return eachElement(raw, math.MaxInt, func(v jsontext.Value) error {
		i++
		var p struct {
			Type *string `json:"type"`
			Text *string `json:"text"`
		}
		switch err := json.Unmarshal(v, &p); {
		case err != nil:
			return wrong
		case p.Type == nil:
			return errors.New("a content part has no type")
		case *p.Type != "text" && *p.Type != "input_text":
			return errors.New("content part " + itoa(i) + " has the type " + quote(*p.Type) + ": only text is supported")
		case p.Text == nil:
			return errors.New("content part " + itoa(i) + " has no text")
		}
		return nil
	})
}

// request turns the body into a request; its RID, Proto and Places come later.
func (b *chatBody) request(s *Server) (*actors.Request, *answer, *apiError) {
	r := &actors.Request{}
	if err := s.checkModel(b.Model); err != nil {
		return nil, nil, err
	}
	if err := b.fill(r, s.cfg.Engine, s.cfg.Defaults); err != nil {
		return nil, nil, err
	}
	if isTrue(b.Echo) {
		return nil, nil, badField("echo", "echo is not supported for chat completions by this server")
	}
	// top_logprobs: 0 without logprobs is what some clients send by default.
	r.Sampling.Logprobs = actors.NoLogprobs
	if isTrue(b.Logprobs) {
		r.Sampling.Logprobs = 0
	}
	if n := b.TopLogprobs; n != nil && *n != 0 {
		if !isTrue(b.Logprobs) {
			return nil, nil, badField("top_logprobs", "top_logprobs needs logprobs: true")
		}
		if *n < 0 || *n > maxLogprobs {
			return nil, nil, badField("top_logprobs", "top_logprobs must be between 0 and %d, got %d", maxLogprobs, *n)
		}
		r.Sampling.Logprobs = *n
	}
	// Without a bound a chat may fill the context. max_completion_tokens is the
	// newer name and wins.
	r.MaxTokens = -1
	name := "max_tokens"
	if b.MaxTokens != nil {
		r.MaxTokens = *b.MaxTokens
	}
	if b.MaxCompletionTokens != nil {
		r.MaxTokens, name = *b.MaxCompletionTokens, "max_completion_tokens"
	}
	if (b.MaxTokens != nil || b.MaxCompletionTokens != nil) && r.MaxTokens < 1 {
		return nil, nil, badField(name, "%s must be at least 1, got %d", name, r.MaxTokens)
	}
	if r.MaxTokens > 0 && r.Sampling.MinTokens > r.MaxTokens {
		return nil, nil, badField("min_tokens", "min_tokens is %d, more than %s %d", r.Sampling.MinTokens, name, r.MaxTokens)
	}
	p, err := b.chatFields.prompt(s)
	if err != nil {
		return nil, nil, err
	}
	if isTrue(b.AddSpecialTokens) {
		p.Encode.AddSpecial = true
	}
	r.Prompts = []actors.Prompt{p}
	a := newAnswer(s, r, &b.commonBody, chatFormat{})
	a.held = int64(len(b.Messages) + len(b.Kwargs))
	return r, a, nil
}
