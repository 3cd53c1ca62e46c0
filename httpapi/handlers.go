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
	err := s.decodeBody(ctx, &b)
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
	err := s.decodeBody(ctx, &b)
	var r *actors.Request
	var a *answer
	if err == nil {
		r, a, err = b.request(s)
	}
	s.complete(ctx, proto, r, a, err, b.RequestID)
}

// decodeBody decodes a request's body into v.
func (s *Server) decodeBody(ctx *fasthttp.RequestCtx, v any) *apiError {
	s.fault("decode")
	if e := ctx.Request.Header.ContentEncoding(); len(e) > 0 && string(e) != "identity" {
		return &apiError{status: 415, param: "Content-Encoding", message: "a body in the encoding " + quote(string(e)) + " is not supported: send it plain"}
	}
	return decodeJSON(ctx.PostBody(), v)
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
func (s *Server) complete(ctx *fasthttp.RequestCtx, proto *waybill.Waybill, r *actors.Request, a *answer, bad *apiError, bodyID *string) {
	e := s.cfg.Engine
	rid := s.requestID(ctx, bodyID)
	ctx.Response.Header.Set("X-Request-Id", rid)
	if bad == nil {
		// Waiting would not help a request that is larger than the server.
		if _, limit := e.Load(); len(r.Prompts)*r.N > limit {
			bad = badField("n", "%d prompts with %d outputs each are %d sequences; this server takes %d at a time", len(r.Prompts), r.N, len(r.Prompts)*r.N, limit)
		}
	}
	if bad != nil {
		e.Received(1)
		e.Invalid(1)
		s.writeError(ctx, bad)
		return
	}
	body := len(ctx.PostBody())
	s.letGo(ctx) // all that is needed of it was copied
	if !s.inbound.keep(a.held) {
		s.inboundFull(ctx)
		return
	}
	defer s.inbound.drop(a.held) // Intake is through with it when the answer begins
	// From here on every sequence is counted as received and then as exactly one
	// of refused and admitted.
	n := len(r.Prompts) * r.N
	e.Received(n)
	proto.Stamp(waybill.Decoded, waybill.Now())
	s.fault("reserve")
	// A place before any work: a refusal costs neither template nor tokenizer. How
	// many tokens the body will make is not known yet; four bytes make about one.
	places, err := e.Reserve(n, body/4)
	if err != nil {
		s.writeError(ctx, err)
		return
	}
	proto.Stamp(waybill.Reserved, waybill.Now())
	r.RID, r.Proto, r.Places = rid, proto, places
	r.TraceParent = string(ctx.Request.Header.Peek("Traceparent"))
	r.TraceState = string(ctx.Request.Header.Peek("Tracestate"))
	a.begin(r.RID, r.Stream)
	if r.Stream {
		r.Encoder = a
	}
	w := e.Submit(r)
	c, ok := ctx.Conn().(*conn)
	if ok {
		c.attach(r)
	} else {
		defer r.ResponseDone(e) // not one of our listeners: nothing is stamped
	}
	s.answer(ctx, c, r, a, w)
}

// answer waits until the head of the answer is decided and sends it.
func (s *Server) answer(ctx *fasthttp.RequestCtx, c *conn, r *actors.Request, a *answer, w *actors.Writer) {
	// Nothing is decided before there is something to send, so a failure up to the
	// first token is a status and not an event.
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
		if seqs := r.Sequences(); len(seqs) == 1 {
			ctx.Response.Header.Set("Server-Timing", serverTiming(seqs[0].Bill, waybill.Now()))
		}
		ctx.SetBody(a.collect(w.Choices()))
	case !ctx.Request.Header.IsHTTP11():
		s.hijack(ctx, c, r, w)
	default:
		ctx.SetContentType(eventStreamType)
		ctx.Response.Header.Set("Cache-Control", "no-cache")
		ctx.Response.Header.Set("X-Accel-Buffering", "no")
		ctx.Response.SetBodyStream(&eventStream{w: w, c: c}, -1)
	}
}

const eventStreamType = "text/event-stream; charset=utf-8"

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
// body, close. The head rides with the first event.
func (s *Server) hijack(ctx *fasthttp.RequestCtx, c *conn, r *actors.Request, w *actors.Writer) {
	head := "HTTP/1.0 200 OK\r\nServer: waybill\r\nContent-Type: " + eventStreamType +
		"\r\nCache-Control: no-cache\r\nX-Accel-Buffering: no\r\nConnection: close\r\nX-Request-Id: " + r.RID + "\r\n\r\n"
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(net.Conn) {
		defer c.Close()
		defer func() {
			if p := recover(); p != nil {
				s.cfg.Engine.Abort(r)
			}
		}()
		_, _ = w.WriteTo(&headed{c: c, head: []byte(head)}, c)
	})
}

// headed writes head before the first bytes that pass it, in the same write.
type headed struct {
	c    *conn
	head []byte
}

// Write writes p to the connection.
func (h *headed) Write(p []byte) (int, error) {
	if h.head == nil {
		return h.c.Write(p)
	}
	all := append(h.head, p...)
	h.head = nil
	n, err := h.c.Write(all)
	return max(0, n-(len(all)-len(p))), err
}
