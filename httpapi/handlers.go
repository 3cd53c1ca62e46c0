package httpapi

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/valyala/fasthttp"

	"waybill/actors"
	"waybill/actors/waybill"
)

// newInstance returns letters that tell this process's request ids from others'.
func newInstance() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// requestID returns the client's X-Request-Id if it is one that is safe to print,
// else an id of ours.
func (s *Server) requestID(ctx *fasthttp.RequestCtx, body *string) string {
	if id := string(ctx.Request.Header.Peek("X-Request-Id")); validRID(id) {
		return id
	}
	if body != nil && validRID(*body) {
		return *body
	}
	return s.instance + "-" + strconv.FormatUint(s.lastRID.Add(1), 10)
}

// validRID reports whether id matches [A-Za-z0-9._:-]{1,128}.
func validRID(id string) bool {
	if len(id) == 0 || len(id) > 128 {
		return false
	}
	for i := 0; i < len(id); i++ {
		switch c := id[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '.', c == '_', c == ':', c == '-':
		default:
			return false
		}
	}
	return true
}

// checkModel accepts the served names, and no name at all.
func (s *Server) checkModel(model *string) *apiError {
	if model == nil || *model == "" {
		return nil
	}
	if len(*model) > maxModelChars {
		return badField("model", "model has %d characters, limit %d", len(*model), maxModelChars)
	}
	for _, n := range s.cfg.Names {
		if n == *model {
			return nil
		}
	}
	return &apiError{status: 404, param: "model", code: "model_not_found", message: fmt.Sprintf("the model %q is not served here", *model)}
}

// answerModel returns the name that an answer carries: the one that was asked for.
func (s *Server) answerModel(model *string) string {
	if model == nil || *model == "" {
		return s.cfg.Names[0]
	}
	return *model
}

// handleChat serves POST /v1/chat/completions.
func (s *Server) handleChat(ctx *fasthttp.RequestCtx) {
	proto := s.arrived(ctx)
	var b chatBody
	err := decodeJSON(ctx.PostBody(), &b)
	var r *actors.Request
	var a *answer
	if err == nil {
		r, a, err = b.request(s)
	}
	s.complete(ctx, proto, r, a, err, b.RequestID)
}

// handleCompletions serves POST /v1/completions.
func (s *Server) handleCompletions(ctx *fasthttp.RequestCtx) {
	proto := s.arrived(ctx)
	var b completionBody
	err := decodeJSON(ctx.PostBody(), &b)
	var r *actors.Request
	var a *answer
	if err == nil {
		r, a, err = b.request(s)
	}
	s.complete(ctx, proto, r, a, err, b.RequestID)
}

// arrived starts the ledger of a request whose body is complete.
func (s *Server) arrived(ctx *fasthttp.RequestCtx) *waybill.Waybill {
	w := &waybill.Waybill{}
	now := waybill.Now()
	w.KernelNs.Store(-1)
	if c, ok := ctx.Conn().(*conn); ok && c.arrived != 0 {
		w.Stamp(waybill.Arrived, c.arrived)
		w.KernelNs.Store(c.kernelNs)
	} else {
		w.Stamp(waybill.Arrived, now)
	}
	w.Stamp(waybill.Received, now)
	return w
}

// complete takes places for a decoded request, submits it and answers.
func (s *Server) complete(ctx *fasthttp.RequestCtx, proto *waybill.Waybill, r *actors.Request, a *answer, bad *apiError, rid *string) {
	e := s.cfg.Engine
	if bad != nil {
		e.Received(1)
		e.Invalid(1)
		s.writeError(ctx, bad)
		return
	}
	n := len(r.Prompts) * r.N
	e.Received(n)
	proto.Stamp(waybill.Decoded, waybill.Now())
	places, err := e.Reserve(n, len(ctx.PostBody())/4)
	if err != nil {
		s.writeError(ctx, err)
		return
	}
	proto.Stamp(waybill.Reserved, waybill.Now())
	r.RID, r.Proto, r.Places = s.requestID(ctx, rid), proto, places
	a.begin(r.RID, r.Stream)
	if r.Stream {
		r.Encoder = a
	}
	w := e.Submit(r)
	c, ok := ctx.Conn().(*conn)
	if ok {
		c.attach(r)
		// A deadline set here makes fasthttp flush this answer although the next
		// request of a pipelining client is in its buffer already.
		_ = c.SetWriteDeadline(s.now().Add(writeDeadline))
	}
	s.answer(ctx, c, r, a, w)
}

// answer waits until the head of the answer is decided and sends it.
func (s *Server) answer(ctx *fasthttp.RequestCtx, c *conn, r *actors.Request, a *answer, w *actors.Writer) {
	ctx.Response.Header.Set("X-Request-Id", r.RID)
	err := w.First()
	switch {
	case errors.Is(err, actors.ErrAborted):
		// The peer is gone or was too slow: a close, not an event.
		ctx.SetConnectionClose()
		if c != nil {
			_ = c.Conn.Close()
		}
	case err != nil:
		s.writeError(ctx, err)
	case !r.Stream:
		ctx.SetContentType("application/json")
		ctx.SetBody(a.collect(w.Choices()))
	case !ctx.Request.Header.IsHTTP11():
		s.hijack(ctx, c, w)
	default:
		ctx.SetContentType("text/event-stream; charset=utf-8")
		ctx.Response.Header.Set("Cache-Control", "no-cache")
		ctx.Response.Header.Set("X-Accel-Buffering", "no")
		ctx.Response.SetBodyStream(&eventStream{w: w, c: c}, -1)
	}
}

// eventStream lets fasthttp run the writer's loop on the serving goroutine.
type eventStream struct {
	w *actors.Writer
	c *conn
}

// Read is never called: fasthttp prefers WriteTo.
func (*eventStream) Read([]byte) (int, error) {
	return 0, errors.New("BUG: httpapi: an event stream is written, not read")
}

// SupportsBodyWriteTo tells fasthttp to use WriteTo.
func (*eventStream) SupportsBodyWriteTo() bool { return true }

// WriteTo writes events until the answer has ended.
func (s *eventStream) WriteTo(dst io.Writer) (int64, error) { return s.w.WriteTo(dst, s.c) }

// hijack answers an HTTP/1.0 client, which does not know chunks: head, unframed
// body, close.
func (s *Server) hijack(ctx *fasthttp.RequestCtx, c *conn, w *actors.Writer) {
	rid := string(ctx.Response.Header.Peek("X-Request-Id"))
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(net.Conn) {
		defer c.Close()
		head := "HTTP/1.0 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\nX-Accel-Buffering: no\r\nConnection: close\r\nX-Request-Id: " + rid + "\r\n\r\n"
		if _, err := c.Write([]byte(head)); err != nil {
			s.cfg.Engine.Abort(c.current.Load())
			return
		}
		_, _ = w.WriteTo(c, c)
	})
}
