package httpapi

import (
	"net"
	"sync/atomic"
	"time"

	"waybill/actors"
	"waybill/actors/waybill"
)

// conn is a client connection that stamps waybills. Its reads and writes happen
// on the serving goroutine; the hang-up watcher touches gone and current only.
type conn struct {
	net.Conn // the interface: a promoted ReadFrom would bypass Write
	engine   *actors.Engine
	watcher  *watcher
	id       uint64
	deadline time.Duration // per write

	arrived   int64 // first byte of the request in hand
	kernelNs  int64 // receive timestamp → return of its first read; -1 unknown
	lastWrite int64 // when the last write to the kernel returned

	gone    atomic.Bool // the peer closed, half-closed or reset
	closed  atomic.Bool
	current atomic.Pointer[actors.Request]
}

// Write writes with a deadline of its own: there is no global write timeout, and
// a dead peer holds its writer for one deadline at most.
func (c *conn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.deadline)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(p)
	if err == nil {
		c.lastWrite = waybill.Now()
	}
	return n, err
}

// Sent stamps what the last write carried.
func (c *conn) Sent(firsts, lasts []*waybill.Waybill) {
	for _, b := range firsts {
		b.Stamp(waybill.FirstByte, c.lastWrite)
	}
	for _, b := range lasts {
		b.Stamp(waybill.LastByte, c.lastWrite)
	}
}

// Close closes the connection and ends the response side of its request.
func (c *conn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.watcher.remove(c)
	}
	err := c.Conn.Close()
	c.finish()
	return err
}

// active is called when the first byte of a request was read.
func (c *conn) active() { c.arrived = waybill.Now() }

// attach makes r the connection's current request. If the peer is gone already
// the request is aborted at once: the watcher's edge fires only once.
func (c *conn) attach(r *actors.Request) {
	c.current.Store(r)
	if c.gone.Load() {
		c.engine.HungUp(r)
	}
}

// hungUp is called by the watcher when the peer is seen gone.
func (c *conn) hungUp() {
	c.gone.Store(true)
	if r := c.current.Load(); r != nil {
		c.engine.HungUp(r)
	}
}

// finish ends the response side of the current request: all its bytes are with
// the kernel, or the connection is closed.
func (c *conn) finish() {
	r := c.current.Swap(nil)
	if r == nil {
		return
	}
	if !r.Stream {
		for _, s := range r.Sequences() {
			if s.Bill.Reason() == waybill.Stop || s.Bill.Reason() == waybill.Length {
				s.Bill.Stamp(waybill.LastByte, c.lastWrite)
			}
		}
	}
	c.engine.Abort(r) // no-op for one that has ended
	r.ResponseDone(c.engine)
}

// listener wraps accepted connections.
type listener struct {
	net.Listener
	engine   *actors.Engine
	watcher  *watcher
	deadline time.Duration
	nextID   uint64
}

// Accept returns the next connection, watched for hang-ups.
func (l *listener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.nextID++
	c := &conn{Conn: nc, engine: l.engine, watcher: l.watcher, id: l.nextID, deadline: l.deadline, kernelNs: -1}
	l.watcher.add(c, nc)
	return c, nil
}
