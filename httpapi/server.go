// Package httpapi serves OpenAI's API over fasthttp. It decodes and checks
// requests, takes a place for them before any work is done, hands them to the
// actors, and writes what comes back on the connection's own goroutine.
package httpapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fasthttp/router"
	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/fasthttpadaptor"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"waybill/actors"
)

// Limits of connections and requests. Each is answered with a status that says
// so, or with a close.
const (
	maxBodyBytes   = 32 << 20          // 413 above; a million tokens of text fit
	maxHeaderBytes = 16 << 10          // 431 above
	readTimeout    = 60 * time.Second  // from the first byte: slow senders
	idleTimeout    = 150 * time.Second // above proxies' usual 60–120 s
	writeDeadline  = 20 * time.Second  // per write: a peer that takes no bytes
	maxConnections = 8192
	// writeBuffer holds what a step adds to some 50 choices, so that it leaves in
	// one system call.
	writeBuffer = 16 << 10
)

// Config says how a server works.
type Config struct {
	// Engine does the work.
	Engine *actors.Engine
	// Names are the model's names; the first is reported.
	Names []string
	// APIKey, if set, is needed as a bearer token for /v1 paths, /tokenize, /detokenize
	// and the console's API.
	APIKey string
	// OverloadStatus is the status of a refusal: 503 or 429.
	OverloadStatus int
	// Version is the program's.
	Version string
	// Chat renders messages; nil if the model has no template.
	Chat ChatTemplate
	// Defaults are the sampling parameters of a request that says nothing.
	Defaults actors.SamplingOptions
	// Created is the model's creation time for /v1/models.
	Created time.Time
	// PerRequestMetrics adds timings to the usage event of every stream that has
	// one.
	PerRequestMetrics bool
	// ReadTimeout bounds a request's arrival from its first byte, IdleTimeout the
	// time between requests, WriteDeadline each write; 0 means the default.
	ReadTimeout, IdleTimeout, WriteDeadline time.Duration
	// Console says whether /console is served.
	Console Console
	// Fault, if set, is called before a body is decoded and before places are
	// taken, with "decode" and "reserve"; tests sleep in it.
	Fault func(point string)
}

// Server is an HTTP server for one engine.
type Server struct {
	cfg     Config
	http    *fasthttp.Server
	watcher *watcher
	closing atomic.Bool // answers carry Connection: close
	inbound inbound
	large   sync.Mutex    // held while a large text is tokenized
	texts   chan struct{} // an element for each other text that is

	mu        sync.Mutex
	down      bool // Shutdown was called
	listeners []net.Listener
	lastRID   atomic.Uint64
	lastConn  atomic.Uint64
	instance  string
}

// New returns a server that is not listening yet.
func New(cfg Config) (*Server, error) {
	w, err := newWatcher()
	if err != nil {
		return nil, err
	}
	cfg.ReadTimeout = cmp.Or(cfg.ReadTimeout, readTimeout)
	cfg.IdleTimeout = cmp.Or(cfg.IdleTimeout, idleTimeout)
	cfg.WriteDeadline = cmp.Or(cfg.WriteDeadline, writeDeadline)
	s := &Server{cfg: cfg, watcher: w, instance: newInstance(), texts: make(chan struct{}, runtime.GOMAXPROCS(0))}
	s.inbound.limit = maxInbound
	metrics := fasthttpadaptor.NewFastHTTPHandler(promhttp.HandlerFor(cfg.Engine.Gatherer(), promhttp.HandlerOpts{}))
	r := router.New()
	r.HandleMethodNotAllowed = true
	// A near miss is a 404: a redirect would guess the scheme and host that a
	// proxy in front has.
	r.RedirectTrailingSlash, r.RedirectFixedPath = false, false
	get := func(path string, h fasthttp.RequestHandler) {
		r.GET(path, h)
		r.HEAD(path, h)
	}
	r.POST("/v1/chat/completions", s.auth(s.handleChat))
	r.POST("/v1/completions", s.auth(s.handleCompletions))
	get("/v1/models", s.auth(s.handleModels))
	get("/v1/models/{model:*}", s.auth(s.handleModel))
	r.POST("/tokenize", s.auth(s.handleTokenize))
	r.POST("/detokenize", s.auth(s.handleDetokenize))
	get("/health", s.handleHealth)
	get("/ready", s.handleReady)
	get("/version", s.handleVersion)
	get("/metrics", metrics)
	s.routeConsole(r)
	r.NotFound = func(ctx *fasthttp.RequestCtx) {
		// As it was sent, which is what is looked up: Path has "//" and ".." taken out.
		s.writeError(ctx, &apiError{status: 404, message: "no such path: " + string(ctx.URI().PathOriginal())})
	}
	r.MethodNotAllowed = func(ctx *fasthttp.RequestCtx) {
		s.writeError(ctx, &apiError{status: 405, message: "method " + string(ctx.Method()) + " is not allowed for " + string(ctx.Path())})
	}
	s.http = &fasthttp.Server{
		Handler:                      s.guard(r.Handler),
		ErrorHandler:                 s.handleProtocolError,
		Name:                         "waybill",
		ReadTimeout:                  cfg.ReadTimeout,
		IdleTimeout:                  cfg.IdleTimeout,
		ReadBufferSize:               maxHeaderBytes,
		WriteBufferSize:              writeBuffer,
		MaxRequestBodySize:           maxBodyBytes,
		Concurrency:                  maxConnections,
		NoDefaultContentType:         true,
		DisablePreParseMultipartForm: true,
		CloseOnShutdown:              true,
		Logger:                       quietLogger{},
		SecureErrorLogMessage:        true, // errors reach clients: fewer header values in them
		ConnState:                    connState,
	}
	return s, nil
}

// quietLogger drops fasthttp's log lines: what matters is in the answers and the
// metrics.
type quietLogger struct{}

func (quietLogger) Printf(string, ...any) {}

// connState follows a connection: the first byte of each request, and the end of
// each answer.
func connState(nc net.Conn, st fasthttp.ConnState) {
	c, ok := nc.(*conn)
	if !ok {
		return
	}
	switch st {
	case fasthttp.StateActive:
		c.active()
	case fasthttp.StateIdle:
		c.idle()
	case fasthttp.StateClosed:
		c.forget()
		c.finish()
	case fasthttp.StateHijacked:
		c.forget()
	}
}

// Serve answers requests until Shutdown. After a Shutdown it returns at once.
func (s *Server) Serve(ln net.Listener) error {
	prepareListener(ln)
	s.mu.Lock()
	down := s.down
	s.listeners = append(s.listeners, ln)
	s.mu.Unlock()
	if down {
		return ln.Close()
	}
	err := s.http.Serve(&listener{Listener: ln, server: s})
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Closing makes every answer carry Connection: close from now on, so that
// clients move to other servers while this one still serves.
func (s *Server) Closing() { s.closing.Store(true) }

// Shutdown stops listening and waits for open connections, or for ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.down = true
	listeners := s.listeners
	s.mu.Unlock()
	err := s.http.ShutdownWithContext(ctx)
	for _, ln := range listeners {
		_ = ln.Close() // fasthttp knows only those whose Serve has got far enough
	}
	s.watcher.close()
	return err
}

// guard recovers panics of handlers: fasthttp has none, and one would end the
// process.
func (s *Server) guard(h fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		defer func() {
			if r := recover(); r != nil {
				ctx.Response.Reset()
				s.writeError(ctx, &apiError{status: 500, message: "internal error"})
				ctx.SetConnectionClose()
			}
		}()
		// A deadline set by a handler makes fasthttp flush this answer although the
		// next request of a pipelining client is in its buffer already.
		_ = ctx.SetWriteDeadline(time.Now().Add(s.cfg.WriteDeadline))
		h(ctx)
		s.letGo(ctx)
		s.holdAnswer(ctx)
		if s.closing.Load() {
			ctx.SetConnectionClose()
		}
	}
}

// auth asks for the API key, if there is one.
func (s *Server) auth(h fasthttp.RequestHandler) fasthttp.RequestHandler {
	if s.cfg.APIKey == "" {
		return h
	}
	want := sha256.Sum256([]byte(s.cfg.APIKey))
	return func(ctx *fasthttp.RequestCtx) {
		scheme, got, _ := strings.Cut(string(ctx.Request.Header.Peek("Authorization")), " ")
		if !strings.EqualFold(scheme, "Bearer") || !sameKey(got, want) {
			ctx.Response.Header.Set("WWW-Authenticate", "Bearer")
			s.writeError(ctx, &apiError{status: 401, message: "the API key is missing or wrong: send Authorization: Bearer <key>"})
			return
		}
		h(ctx)
	}
}

// sameKey compares a key with the hash of the right one. It takes as long whatever
// the key's bytes and length are.
func sameKey(got string, want [sha256.Size]byte) bool {
	sum := sha256.Sum256([]byte(got))
	return subtle.ConstantTimeCompare(sum[:], want[:]) == 1
}

// fault calls the test hook.
func (s *Server) fault(point string) {
	if s.cfg.Fault != nil {
		s.cfg.Fault(point)
	}
}

// quoted matches what an error of fasthttp quotes: a header's value, or the start of
// the request with all that was read of it.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// handleProtocolError answers requests that fasthttp could not read. Answers get
// into logs of clients and proxies, so what was sent, which may be a key, is not in
// them.
func (s *Server) handleProtocolError(ctx *fasthttp.RequestCtx, err error) {
	e := &apiError{status: 400, message: "the request could not be read: " + quoted.ReplaceAllString(err.Error(), `"…"`)}
	var small *fasthttp.ErrSmallBuffer
	var ne net.Error
	switch {
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		e = &apiError{status: 413, message: "the body is larger than the limit of " + itoa(maxBodyBytes) + " bytes"}
	case errors.Is(err, errInboundFull):
		s.inboundFull(ctx)
		return
	case errors.As(err, &small):
		e = &apiError{status: 431, message: "the headers are larger than the limit of " + itoa(maxHeaderBytes) + " bytes"}
	case errors.As(err, &ne) && ne.Timeout():
		e = &apiError{status: 408, message: "the request did not arrive within " + s.cfg.ReadTimeout.String()}
	}
	if c, ok := ctx.Conn().(*conn); ok && c.requests == 0 {
		_ = c.Conn.Close() // it never sent a byte: nobody waits for an answer
		return
	}
	s.cfg.Engine.Unreadable()
	s.writeError(ctx, e)
	ctx.SetConnectionClose()
}
