package httpapi

import (
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
	name := pathValue(ctx, "model")
	if err := s.checkModel(&name); err != nil {
		s.writeError(ctx, err)
		return
	}
	s.writeJSON(ctx, s.model(name))
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

// pathValue returns an unescaped path parameter.
func pathValue(ctx *fasthttp.RequestCtx, name string) string {
	v, _ := ctx.UserValue(name).(string)
	if u, err := url.PathUnescape(v); err == nil {
		return u
	}
	return v
}
