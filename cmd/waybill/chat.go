package main

import (
	"encoding/json"
	"fmt"
	"time"

	"waybill/actors"
	"waybill/httpapi"
	"waybill/model"
	"waybill/model/chat"
	"waybill/model/tokenizer"
)

// chatTemplate renders messages with the model's own template.
type chatTemplate struct{ t *chat.Template }

// newChat compiles the model's default chat template; nil if it has none.
func newChat(src *model.Source, tok *tokenizer.Tokenizer) (httpapi.ChatTemplate, error) {
	source, ok := src.ChatTemplates["default"]
	if !ok {
		return nil, nil
	}
	text := func(id int32, ok bool, name string) string {
		if t, named := src.TemplateTokens[name]; named {
			return t
		}
		if !ok {
			return ""
		}
		return tok.TokenText(id)
	}
	bos, hasBOS := tok.BOS()
	eos, hasEOS := tok.EOS()
	t, err := chat.Compile(source, text(bos, hasBOS, "bos_token"), text(eos, hasEOS, "eos_token"), tok.SpecialTokens())
	if err != nil {
		return nil, fmt.Errorf("%s: chat template: %w", src.Path, err)
	}
	return chatTemplate{t}, nil
}

// Render implements httpapi.ChatTemplate.
func (c chatTemplate) Render(messages json.RawMessage, o httpapi.ChatOptions) (string, []actors.Span, error) {
	return c.t.Render(messages, chat.Options{
		AddGenerationPrompt: o.AddGenerationPrompt, ContinueFinalMessage: o.ContinueFinal, Kwargs: o.Kwargs, Now: time.Now(), Cancelled: o.Cancelled,
	})
}
