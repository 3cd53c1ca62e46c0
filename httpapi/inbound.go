package httpapi

import (
	"errors"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// Limits on bodies under way. Every connection may send maxBodyBytes, and
// thousands that do, slowly, would take all memory before any of them asks for a
// place.
const (
	// maxInbound bounds the bytes of requests that are being read or wait to be
	// tokenized, and of large answers that wait for their clients, of all
	// connections. Sixteen of the largest requests fit.
	maxInbound = 512 << 20
	// smallRequest is read whatever others send: ordinary requests pass a server
	// that is being flooded.
	smallRequest = 1 << 20
	// keptBody is the largest body buffer that is kept for the next request.
	keptBody = 64 << 10
	// trimAfter is how many bytes of large bodies are let go of before memory is
	// given back to the system, trimPause the least time between two times: each
	// is a garbage collection.
	trimAfter = 4 << 20
	trimPause = 5 * time.Second
)

// errInboundFull ends the reading of a large request while too many are read.
var errInboundFull = errors.New("the server is reading too many large requests")

// inbound counts the bytes of requests that are being read or decoded, and those of
// large ones that wait for Intake.
type inbound struct {
	bytes    atomic.Int64
	limit    int64
	dropped  atomic.Int64 // bytes of large bodies since the last trim
	trimming atomic.Bool
}

// refuses reports whether a request of which read bytes are here may not go on.
func (i *inbound) refuses(read int64) bool {
	return read >= smallRequest && i.bytes.Load() > i.limit
}

// keep counts the bytes of a decoded request that wait for Intake: without them the
// bodies of a whole queue would be counted nowhere. It reports false if there is no
// room for so large a one. drop takes them out of the count again.
func (i *inbound) keep(n int64) bool {
	if n < smallRequest || i.bytes.Add(n) <= i.limit {
		return true
	}
	i.bytes.Add(-n)
	return false
}

func (i *inbound) drop(n int64) {
	if n >= smallRequest {
		i.bytes.Add(-n)
	}
}

// inboundFull refuses a large request because of others.
func (s *Server) inboundFull(ctx *fasthttp.RequestCtx) {
	s.cfg.Engine.Unreadable()
	ctx.Response.Header.Set("Retry-After", "1")
	s.writeError(ctx, &apiError{status: 503, message: errInboundFull.Error() + ": the limit is " + itoa(int(s.inbound.limit)) + " bytes in all"})
	ctx.SetConnectionClose()
}

// holdAnswer counts a large answer that is not streamed until it has left, which is
// one or two write deadlines at most. If there is no room for it, it is a refusal.
func (s *Server) holdAnswer(ctx *fasthttp.RequestCtx) {
	c, ok := ctx.Conn().(*conn)
	if !ok || ctx.Response.IsBodyStream() {
		return
	}
	n := int64(len(ctx.Response.Body()))
	switch {
	case n < smallRequest:
	case s.inbound.keep(n):
		c.read += n // let go of with the request
	default:
		ctx.Response.Reset()
		ctx.Response.Header.Set("Retry-After", "1")
		s.writeError(ctx, &apiError{status: 503, message: "too many large answers wait for their clients: the limit is " +
			itoa(int(s.inbound.limit)) + " bytes of requests and answers in all"})
	}
}

// letGo drops a request's body as soon as nobody reads it any more. A large buffer
// is not kept: fasthttp would hold it for as long as connections come and go.
func (s *Server) letGo(ctx *fasthttp.RequestCtx) {
	n := len(ctx.Request.Body())
	if n <= keptBody {
		return
	}
	ctx.Request.SwapBody(nil)
	if c, ok := ctx.Conn().(*conn); ok {
		c.forget()
	}
	i := &s.inbound
	if i.dropped.Add(int64(n)) < trimAfter || !i.trimming.CompareAndSwap(false, true) {
		return
	}
	time.AfterFunc(trimPause, i.trim)
}

// trim gives memory back to the system, once what was decoded from the bodies is
// gone as well, and again as long as more of them come. Pools keep what they hold
// through one collection.
func (i *inbound) trim() {
	if i.dropped.Swap(0) == 0 {
		i.trimming.Store(false)
		return
	}
	debug.FreeOSMemory()
	debug.FreeOSMemory()
	time.AfterFunc(trimPause, i.trim)
}
