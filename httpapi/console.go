package httpapi

import (
	"crypto/subtle"
	"embed"
	"fmt"
	"io"
	"net"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/fasthttp/router"
	"github.com/valyala/fasthttp"

	"waybill/actors"
)

// consoleFiles are the console's page, script and style: no build step, nothing
// from another host.
//
//go:embed console
var consoleFiles embed.FS

// consoleTypes are the content types of consoleFiles by suffix.
var consoleTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
}

// consolePolicy allows the console what it needs and nothing else: a request id
// or a model's name that holds a script cannot run, were it ever not escaped.
const consolePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// consoleActionHeader must come with every action: a page of another origin
// cannot send it without being asked first, and is never allowed.
const consoleActionHeader = "X-Waybill-Console"

// Console says who may see the console and do what.
type Console struct {
	// Enabled serves /console at all.
	Enabled bool
	// Drain is what the drain action does; nil: there is none. Needs the engine's
	// ConsoleActions.
	Drain func()
	// Log hears of every action; may be nil.
	Log func(action, target, peer string)
}

// routeConsole adds the console's paths.
func (s *Server) routeConsole(r *router.Router) {
	if !s.cfg.Console.Enabled {
		off := func(ctx *fasthttp.RequestCtx) {
			s.writeError(ctx, &apiError{status: 404, message: "the console is off: it is served on a loopback address, or with --console and --api-key"})
		}
		r.GET("/console", off)
		r.GET("/console/{rest:*}", off)
		return
	}
	asset := func(ctx *fasthttp.RequestCtx) {
		name, _ := ctx.UserValue("file").(string)
		s.consoleFile(name)(ctx)
	}
	r.GET("/console", s.consoleFile("index.html"))
	r.HEAD("/console", s.consoleFile("index.html"))
	r.GET("/console/assets/{file}", asset)
	r.HEAD("/console/assets/{file}", asset)
	api := func(h fasthttp.RequestHandler) fasthttp.RequestHandler { return s.consoleGuard(s.auth(h)) }
	r.GET("/console/api/snapshot", api(s.handleSnapshot))
	r.GET("/console/api/events", api(s.handleEvents))
	r.GET("/console/api/requests/{rid:*}", api(s.handleWaterfall))
	r.GET("/console/api/actors/{name:*}", api(s.handleInspect))
	r.POST("/console/api/cancel", api(s.action(s.handleCancel)))
	r.POST("/console/api/drain", api(s.action(s.handleDrain)))
}

// consoleHeaders are on every answer of the console.
func consoleHeaders(ctx *fasthttp.RequestCtx) {
	h := &ctx.Response.Header
	h.Set("Content-Security-Policy", consolePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// consoleFile serves an embedded file.
func (s *Server) consoleFile(name string) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		consoleHeaders(ctx)
		b, err := consoleFiles.ReadFile("console/" + path.Base(name))
		if err != nil {
			s.writeError(ctx, &apiError{status: 404, message: "the console has no such file"})
			return
		}
		ctx.SetContentType(consoleTypes[path.Ext(name)])
		ctx.SetBody(b)
	}
}

// consoleGuard refuses what a browser sends for a page of another origin. Without
// an API key a loopback address is no protection by itself: any page may let its
// host name point to it.
func (s *Server) consoleGuard(h fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		consoleHeaders(ctx)
		host := string(ctx.Host())
		if s.cfg.APIKey == "" && !loopbackName(host) {
			s.writeError(ctx, &apiError{status: 403, message: "the console without an API key answers to localhost, 127.0.0.1 and [::1] only"})
			return
		}
		if origin := string(ctx.Request.Header.Peek("Origin")); origin != "" {
			u, err := url.Parse(origin)
			if err != nil || u.Host != host {
				s.writeError(ctx, &apiError{status: 403, message: "the console does not answer pages of another origin"})
				return
			}
		}
		h(ctx)
	}
}

// loopbackName reports whether a Host header names this machine to itself.
func loopbackName(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// handleSnapshot serves one sample.
func (s *Server) handleSnapshot(ctx *fasthttp.RequestCtx) {
	b, err := s.cfg.Engine.Sample()
	if err != nil {
		s.viewerRefused(ctx, err)
		return
	}
	ctx.SetContentType("application/json")
	ctx.SetBody(b)
}

func (s *Server) viewerRefused(ctx *fasthttp.RequestCtx, err error) {
	ctx.Response.Header.Set("Retry-After", "5")
	s.writeError(ctx, &apiError{status: 503, message: err.Error()})
}

// handleEvents streams samples as server-sent events until the viewer goes away.
func (s *Server) handleEvents(ctx *fasthttp.RequestCtx) {
	w, err := s.cfg.Engine.Watch()
	if err != nil {
		s.viewerRefused(ctx, err)
		return
	}
	c, ok := ctx.Conn().(*conn)
	if !ok {
		w.Close()
		s.writeError(ctx, &apiError{status: 500, message: "internal error"})
		return
	}
	if c.viewer.Store(w); c.gone.Load() {
		w.Close()
	}
	ctx.SetContentType("text/event-stream")
	ctx.Response.Header.Set("X-Accel-Buffering", "no")
	ctx.SetConnectionClose()
	stream := &sampleStream{watcher: w, conn: c, server: s}
	if ctx.Request.Header.IsHTTP11() {
		ctx.Response.SetBodyStream(stream, -1)
		return
	}
	// An HTTP/1.0 client does not know chunks.
	head := []byte("HTTP/1.0 200 OK\r\n")
	for k, v := range ctx.Response.Header.All() {
		head = fmt.Appendf(head, "%s: %s\r\n", k, v)
	}
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(net.Conn) {
		defer c.Close()
		_, _ = stream.WriteTo(&headed{c: c, head: append(head, "\r\n"...)})
	})
}

// sampleStream writes a viewer's samples on the connection's own goroutine.
type sampleStream struct {
	watcher *actors.Watcher
	conn    *conn
	server  *Server
}

// SupportsBodyWriteTo tells fasthttp to call WriteTo.
func (*sampleStream) SupportsBodyWriteTo() bool { return true }

// Read is never called.
func (*sampleStream) Read([]byte) (int, error) { return 0, io.EOF }

// Close ends the subscription.
func (e *sampleStream) Close() error {
	e.watcher.Close()
	return nil
}

// WriteTo writes events until the peer is gone or the server closes.
func (e *sampleStream) WriteTo(dst io.Writer) (int64, error) {
	defer e.watcher.Close()
	var n int64
	var buf []byte
	// The watcher ends the subscription of a viewer that left; this goroutine sees it
	// a moment later.
	look := time.NewTicker(viewerLook)
	defer look.Stop()
	for {
		select {
		case b := <-e.watcher.Updates:
			buf = append(append(append(buf[:0], "data: "...), b...), "\n\n"...)
			m, err := dst.Write(buf)
			n += int64(m)
			if err != nil {
				return n, err
			}
		case <-look.C:
		}
		if e.conn.gone.Load() || e.server.closing.Load() {
			return n, nil
		}
	}
}

// viewerLook is how often a stream looks whether its viewer has gone, or the
// server closes.
const viewerLook = 500 * time.Millisecond

// handleWaterfall serves one request.
func (s *Server) handleWaterfall(ctx *fasthttp.RequestCtx) {
	w, err := s.cfg.Engine.Waterfall(pathValue(ctx, "rid"))
	if err != nil {
		s.writeError(ctx, &apiError{status: 404, message: err.Error()})
		return
	}
	s.writeJSON(ctx, w)
}

// handleInspect serves one actor's own figures.
func (s *Server) handleInspect(ctx *fasthttp.RequestCtx) {
	v, err := s.cfg.Engine.Inspect(pathValue(ctx, "name"))
	if err != nil {
		s.writeError(ctx, &apiError{status: 404, message: err.Error()})
		return
	}
	s.writeJSON(ctx, v)
}

// action lets a POST through that a viewer meant and may do.
func (s *Server) action(h fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		switch {
		case !s.cfg.Engine.ActionsAllowed():
			s.writeError(ctx, &apiError{status: 403, message: "actions are off: start the server with --console-actions"})
		case subtle.ConstantTimeCompare(ctx.Request.Header.Peek(consoleActionHeader), []byte("1")) != 1:
			s.writeError(ctx, &apiError{status: 403, message: "an action needs the header " + consoleActionHeader + ": 1"})
		default:
			h(ctx)
		}
	}
}

// handleCancel ends a request: POST {"rid":"…"}.
func (s *Server) handleCancel(ctx *fasthttp.RequestCtx) {
	var b struct {
		RID string `json:"rid"`
	}
	if err := decodeJSON(ctx.PostBody(), &b); err != nil {
		s.writeError(ctx, err)
		return
	}
	n := s.cfg.Engine.Cancel(b.RID)
	s.acted(ctx, "cancel", b.RID)
	if n == 0 {
		s.writeError(ctx, &apiError{status: 404, message: actors.ErrUnknownRequest.Error()})
		return
	}
	s.writeJSON(ctx, map[string]int{"cancelled": n})
}

// handleDrain begins what a SIGTERM begins.
func (s *Server) handleDrain(ctx *fasthttp.RequestCtx) {
	if s.cfg.Console.Drain == nil {
		s.writeError(ctx, &apiError{status: 404, message: "this server cannot be drained from here"})
		return
	}
	s.acted(ctx, "drain", "")
	s.writeJSON(ctx, map[string]bool{"draining": true})
	s.cfg.Console.Drain()
}

// acted logs an action.
func (s *Server) acted(ctx *fasthttp.RequestCtx, action, target string) {
	if log := s.cfg.Console.Log; log != nil {
		log(action, strconv.QuoteToASCII(target), ctx.RemoteAddr().String())
	}
}
