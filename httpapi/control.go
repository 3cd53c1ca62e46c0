package httpapi

import (
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/valyala/fasthttp"

	"waybill/actors"
)

// writeJSON answers with v.
func (s *Server) writeJSON(ctx *fasthttp.RequestCtx, v any) {
	b, err := marshal(v)
	if err != nil {
		s.writeError(ctx, err)
		return
	}
	ctx.SetContentType("application/json")
	ctx.SetBody(b)
}

// modelObject is an entry of /v1/models.
type modelObject struct {
	ID          string   `json:"id"`
	Object      string   `json:"object"`
	Created     int64    `json:"created"`
	OwnedBy     string   `json:"owned_by"`
	Root        string   `json:"root"`
	Parent      *string  `json:"parent"`
	MaxModelLen int      `json:"max_model_len"`
	Permission  []string `json:"permission"`
}

func (s *Server) model(name string) modelObject {
	return modelObject{
		ID: name, Object: "model", Created: s.cfg.Created.Unix(), OwnedBy: "waybill", Root: s.cfg.Names[0],
		MaxModelLen: s.cfg.Engine.MaxModelLen(), Permission: []string{},
	}
}

// handleModels serves GET /v1/models.
func (s *Server) handleModels(ctx *fasthttp.RequestCtx) {
	list := struct {
		Object string        `json:"object"`
		Data   []modelObject `json:"data"`
	}{Object: "list"}
	for _, n := range s.cfg.Names {
		list.Data = append(list.Data, s.model(n))
	}
	s.writeJSON(ctx, list)
}

// handleModel serves GET /v1/models/{model}.
func (s *Server) handleModel(ctx *fasthttp.RequestCtx) {
	name, _ := ctx.UserValue("model").(string)
	if n, err := url.PathUnescape(name); err == nil {
		name = n
	}
	if err := s.checkModel(&name); err != nil {
		s.writeError(ctx, err)
		return
	}
	s.writeJSON(ctx, s.model(name))
}

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
	defer s.oneLarge(len(text))()
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

// maxTextBytes is the longest text that /tokenize and /detokenize work on: some
// million tokens. Their answers are several times as long as what they are about.
const maxTextBytes = 4 << 20

func textTooLong(param string) *apiError {
	return badField(param, "the text has more than %d bytes: send it in parts", maxTextBytes)
}

// oneLarge makes large texts wait for one another, and returns what ends that: each
// takes some 100 MB for a moment.
func (s *Server) oneLarge(n int) (done func()) {
	if n < smallRequest/4 {
		return func() {}
	}
	s.large.Lock()
	return s.large.Unlock
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
	defer s.oneLarge(n)()
	s.writeJSON(ctx, map[string]string{"prompt": s.cfg.Engine.Detokenize(b.Tokens, false)})
}

// handleHealth serves GET /health: does the engine make progress? A full queue
// or a drain is not ill health.
func (s *Server) handleHealth(ctx *fasthttp.RequestCtx) {
	if err := s.cfg.Engine.Healthy(); err != nil {
		s.writeError(ctx, &apiError{status: 503, message: err.Error()})
		return
	}
	ctx.SetStatusCode(200)
}

// handleReady serves GET /ready: would a new request be served?
func (s *Server) handleReady(ctx *fasthttp.RequestCtx) {
	err := s.cfg.Engine.Ready()
	if err == nil && s.closing.Load() {
		err = actors.ErrDraining
	}
	if err != nil {
		s.writeError(ctx, &apiError{status: 503, message: err.Error()})
		return
	}
	ctx.SetStatusCode(200)
}

// handleVersion serves GET /version.
func (s *Server) handleVersion(ctx *fasthttp.RequestCtx) {
	s.writeJSON(ctx, map[string]string{"version": s.cfg.Version})
}
