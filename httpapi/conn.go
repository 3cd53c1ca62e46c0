package httpapi

import (
	"errors"
	"net"
	"sync/atomic"
	"syscall"
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
	timeout  time.Duration // for the arrival of the first request

	requests  int       // that have begun
	arrived   int64     // first byte of the request in hand
	lastWrite int64     // when the last write of its answer returned; 0: none did
	kernelNs  int64     // receive timestamp → return of its first read; -1 unknown
	stamped   stampedFD // reads with the kernel's receive timestamp
	fresh     bool      // no byte of the next request was read yet
	inbound   *inbound
	read      int64 // bytes of the request in hand and its large answer, counted in inbound

	gone    atomic.Bool // the peer closed, half-closed or reset
	closed  atomic.Bool
	current atomic.Pointer[actors.Request]
	viewer  atomic.Pointer[actors.Watcher] // the console's stream, if this is one
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
	} else {
		c.lastWrite = 0
	}
	return n, err
}

// Read reads; the first read of a request learns when the kernel received it.
func (c *conn) Read(p []byte) (n int, err error) {
	if c.inbound.refuses(c.read) {
		return 0, errInboundFull
	}
	if c.fresh && c.stamped.usable() {
		var ns int64
		if n, ns, err = c.stamped.read(p); n > 0 {
			c.fresh, c.kernelNs = false, ns
		}
	} else {
		n, err = c.Conn.Read(p)
	}
	c.read += int64(n)
	c.inbound.bytes.Add(int64(n))
	return n, err
}

// forget takes the bytes of the request in hand out of the count: its body is let
// go of.
func (c *conn) forget() {
	c.inbound.bytes.Add(-c.read)
	c.read = 0
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

// Close closes the connection and ends the response side of its request. At a
// shutdown fasthttp calls it for idle connections from a goroutine of its own,
// so it touches nothing that belongs to the serving goroutine.
func (c *conn) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.watcher.remove(c)
	}
	err := c.Conn.Close()
	c.finish()
	return err
}

// active is called when the first byte of a request was read.
func (c *conn) active() {
	c.arrived = waybill.Now()
	if c.fresh {
		c.kernelNs = -1 // its bytes came with those of the request before
	}
	c.fresh = false
	if c.requests++; c.requests == 1 {
		// A client may connect long before it asks; its time starts now.
		_ = c.SetReadDeadline(time.Now().Add(c.timeout))
	}
}

// attach makes r the connection's current request. If the peer is gone already
// the request is aborted at once: the watcher's edge fires only once.
func (c *conn) attach(r *actors.Request) {
	c.lastWrite = 0
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
	if w := c.viewer.Load(); w != nil {
		w.Close()
	}
}

// idle is called when an answer has been written and the next request may come.
func (c *conn) idle() {
	c.fresh = true
	c.forget()
	c.finish()
}

// finish ends the response side of the current request: all its bytes are with
// the kernel, or the connection is closed.
func (c *conn) finish() {
	r := c.current.Swap(nil)
	if r == nil {
		return
	}
	if !r.Stream && c.lastWrite != 0 {
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
	server *Server
}

// acceptPause is how long Accept waits before it asks again for a connection that
// the system had no room for: long enough to cost nothing, short for who waits in the
// kernel's queue.
const acceptPause = 20 * time.Millisecond

// Accept returns the next connection, watched for hang-ups. Without a descriptor or
// memory for one more it waits until others have ended: an error would end the
// service of all.
func (l *listener) Accept() (net.Conn, error) {
	s := l.server
	nc, err := l.Listener.Accept()
	for noRoom(err) {
		s.cfg.Engine.NotAccepted()
		time.Sleep(acceptPause)
		nc, err = l.Listener.Accept()
	}
	if err != nil {
		return nil, err
	}
	c := &conn{
		Conn: nc, engine: s.cfg.Engine, watcher: s.watcher, id: s.lastConn.Add(1),
		inbound: &s.inbound, deadline: s.cfg.WriteDeadline, timeout: s.cfg.ReadTimeout, kernelNs: -1, fresh: true,
	}
	c.stamped.init(nc)
	under := nc
	if t, ok := nc.(interface{ NetConn() net.Conn }); ok {
		under = t.NetConn() // TLS: the socket below it is what closes
	}
	s.watcher.add(c, under)
	return c, nil
}

// noRoom reports whether a connection could not be accepted for want of what other
// connections give back.
func noRoom(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM)
}
