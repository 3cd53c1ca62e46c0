package httpapi

import (
	"encoding/json"
	"fmt"

	"github.com/valyala/fasthttp"

	"waybill/actors"
)

// tokenizeBody is the body of POST /tokenize: a prompt, or messages.
type tokenizeBody struct {
	Model            *string `json:"model"`
	Prompt           *string `json:"prompt"`
	AddSpecialTokens *bool   `json:"add_special_tokens"`
	ReturnTokenStrs  *bool   `json:"return_token_strs"`
	chatFields
	Tools json.RawMessage `json:"tools"`
}

// handleTokenize serves POST /tokenize.
func (s *Server) handleTokenize(ctx *fasthttp.RequestCtx) {
	var b tokenizeBody
	if err := decodeJSON(ctx.PostBody(), &b); err != nil {
		s.writeError(ctx, err)
		return
	}
	if err := s.checkModel(b.Model); err != nil {
		s.writeError(ctx, err)
		return
	}
	if err := (&unsupported{Tools: b.Tools}).check(); err != nil {
		s.writeError(ctx, err)
		return
	}
	var text string
	param := "prompt"
	enc := actors.EncodeOptions{ParseSpecial: true}
	switch {
	// As in a request: a prompt gets the special tokens of the tokenizer, messages
	// those of the template.
	case b.Prompt != nil && len(b.Messages) > 0:
		s.writeError(ctx, badField("prompt", "prompt and messages exclude each other"))
		return
	case b.Prompt != nil:
		text = *b.Prompt
		enc.AddSpecial = b.AddSpecialTokens == nil || *b.AddSpecialTokens
	default:
		param = "messages"
		p, bad := b.chatFields.prompt(s)
		if bad != nil {
			s.writeError(ctx, bad)
			return
		}
		var err error
		if text, enc.Plain, err = p.Render(nil); err != nil {
			s.writeError(ctx, badField("messages", "%v", err))
			return
		}
		enc.AddSpecial = isTrue(b.AddSpecialTokens)
	}
	if len(text) > maxTextBytes {
		s.writeError(ctx, textTooLong(param))
		return
	}
	defer s.inTurn(len(text))()
	ids := s.cfg.Engine.Tokenize(text, enc)
	// Written by hand: by way of a list of strings it takes several times as much.
	out := make([]byte, 0, 64+8*len(ids))
	out = fmt.Appendf(out, `{"count":%d,"max_model_len":%d,"tokens":`, len(ids), s.cfg.Engine.MaxModelLen())
	out = append(appendIDs(out, ids), `,"token_strs":`...)
	if !isTrue(b.ReturnTokenStrs) {
		out = append(out, "null}"...)
	} else {
		out = append(out, '[')
		for i, id := range ids {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendString(out, []byte(s.cfg.Engine.TokenText(id)))
		}
		out = append(out, "]}"...)
	}
	ctx.SetContentType("application/json")
	ctx.Response.SetBodyRaw(out)
}

// handleDetokenize serves POST /detokenize.
func (s *Server) handleDetokenize(ctx *fasthttp.RequestCtx) {
	var b struct {
		Model  *string `json:"model"`
		Tokens idList  `json:"tokens"`
	}
	err := decodeJSON(ctx.PostBody(), &b)
	if err == nil {
		err = s.checkModel(b.Model)
	}
	if err == nil && b.Tokens == nil {
		err = badField("tokens", "tokens is missing: a list of token ids")
	}
	if err == nil {
		err = checkIDs("tokens", b.Tokens, s.cfg.Engine.VocabSize())
	}
	if err != nil {
		s.writeError(ctx, err)
		return
	}
	// A token of two bytes in the body may stand for a hundred.
	n := 0
	for _, id := range b.Tokens {
		if n += len(s.cfg.Engine.TokenText(id)); n > maxTextBytes {
			s.writeError(ctx, textTooLong("tokens"))
			return
		}
	}
	defer s.inTurn(n)()
	s.writeJSON(ctx, map[string]string{"prompt": s.cfg.Engine.Detokenize(b.Tokens, false)})
}

// maxTextBytes is the longest text that /tokenize and /detokenize work on: some
// million tokens. Their answers are several times as long as what they are about.
const maxTextBytes = 4 << 20

func textTooLong(param string) *apiError {
	return badField(param, "the text has more than %d bytes: send it in parts", maxTextBytes)
}

// smallText is tokenized whatever others send: ordinary texts do not wait.
const smallText = 4 << 10

// inTurn makes texts wait for one another, and returns what ends a turn. Merging takes
// some 30 bytes for each of the text: of large texts, 100 MB for a moment, there is one at
// a time, and of others as many as there are cores, since more would be no faster.
func (s *Server) inTurn(n int) (done func()) {
	switch {
	case n < smallText:
		return func() {}
	case n < smallRequest/4:
		s.texts <- struct{}{}
		return func() { <-s.texts }
	}
	s.large.Lock()
	return s.large.Unlock
}
