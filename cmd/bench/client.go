package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// dialTimeout covers a listen queue that is full for a while. A server that takes
	// longer to accept is down; the failure counts and is shown.
	dialTimeout = 30 * time.Second
	// maxBody bounds the answers that are read whole: errors, /tokenize, /metrics.
	maxBody = 64 << 20
)

// client speaks HTTP/1.1 to one server over connections of its own. net/http's
// client is not used for the streams because it reads in a goroutine of its own:
// here the goroutine that waits for an event reads the socket, and each read is
// stamped as it returns.
type client struct {
	base   *url.URL
	header map[string]string // sent with every request
	// timeout bounds a request from sending to its last byte; 0: it may take for
	// ever.
	timeout time.Duration

	mu sync.Mutex // guards idle
	// idle is last in, first out, so that after a burst the surplus ages and is
	// closed by the server. Its size is bounded by the requests that were ever open
	// at once.
	idle []*stampedConn
}

// stampedConn remembers when its last read returned.
type stampedConn struct {
	net.Conn
	r      *bufio.Reader // of the connection's own Read
	readAt time.Time     // when the last read returned
	reads  int           // reads that returned data
	reused bool          // it has served a request before
}

// Read reads from the connection and stamps the time.
func (c *stampedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.readAt = time.Now()
	if n > 0 {
		c.reads++
	}
	return n, err
}

// newClient checks the server's URL. Nothing is opened.
func newClient(base string, header map[string]string) (*client, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, fmt.Errorf("bench: base URL: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("bench: base URL %q is not http://host:port or https://host:port", base)
	}
	return &client{base: u, header: header}, nil
}

// dial opens a connection to the server.
func (c *client) dial(ctx context.Context) (*stampedConn, error) {
	port := c.base.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[c.base.Scheme]
	}
	addr := net.JoinHostPort(c.base.Hostname(), port)
	d := net.Dialer{Timeout: dialTimeout}
	// No proxy: it would be measured too.
	var (
		nc  net.Conn
		err error
	)
	if c.base.Scheme == "https" {
		td := tls.Dialer{NetDialer: &d, Config: &tls.Config{ServerName: c.base.Hostname(), NextProtos: []string{"http/1.1"}}}
		nc, err = td.DialContext(ctx, "tcp", addr)
	} else {
		nc, err = d.DialContext(ctx, "tcp", addr)
	}
	if err != nil {
		return nil, err
	}
	sc := &stampedConn{Conn: nc}
	sc.r = bufio.NewReaderSize(sc, 32<<10)
	return sc, nil
}

// take returns an idle connection or a new one.
func (c *client) take(ctx context.Context, fresh bool) (*stampedConn, error) {
	if !fresh {
		c.mu.Lock()
		if n := len(c.idle); n > 0 {
			sc := c.idle[n-1]
			c.idle = c.idle[:n-1]
			c.mu.Unlock()
			sc.reused = true
			return sc, nil
		}
		c.mu.Unlock()
	}
	return c.dial(ctx)
}

// put gives an idle connection back.
func (c *client) put(sc *stampedConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle = append(c.idle, sc)
}

// close closes the idle connections.
func (c *client) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sc := range c.idle {
		sc.Close()
	}
	c.idle = nil
}

// head appends a request's head.
func (c *client) head(dst []byte, method, path, rid string, length int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: waybill-bench\r\n", method, strings.TrimSuffix(c.base.Path, "/")+path, c.base.Host)
	if method == http.MethodPost {
		b.WriteString("Content-Type: application/json\r\nContent-Length: " + strconv.Itoa(length) + "\r\n")
	}
	if rid != "" {
		b.WriteString("X-Request-Id: " + rid + "\r\n")
	}
	keys := make([]string, 0, len(c.header))
	for k := range c.header {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		b.WriteString(k + ": " + c.header[k] + "\r\n")
	}
	b.WriteString("\r\n")
	return append(dst, b.Bytes()...)
}

// exchange sends one request in one write and gives the answer to handle, on a
// connection that lives as long as ctx. A connection that the server closed while
// it was idle is replaced once.
func (c *client) exchange(ctx context.Context, request []byte, method string, handle func(*stampedConn, *http.Response) error) error {
	for fresh := false; ; fresh = true {
		sc, err := c.take(ctx, fresh)
		if err != nil {
			return err
		}
		stop := context.AfterFunc(ctx, func() { sc.Close() })
		before := sc.reads
		resp, err := sc.ask(request, method)
		if err != nil {
			stop()
			sc.Close()
			// Not a byte of an answer on a connection that was idle: the server had
			// closed it, and has not seen the request.
			if sc.reused && !fresh && sc.reads == before && ctx.Err() == nil {
				continue
			}
			return cause(ctx, err)
		}
		err = handle(sc, resp)
		if err == nil {
			// Only a connection whose answer was read to its end can be used again.
			if _, end := resp.Body.Read(make([]byte, 1)); !errors.Is(end, io.EOF) {
				resp.Close = true
			}
		}
		if !stop() || err != nil || resp.Close {
			sc.Close()
			return cause(ctx, err)
		}
		c.put(sc)
		return nil
	}
}

// ask writes a request and reads the answer's head.
func (c *stampedConn) ask(request []byte, method string) (*http.Response, error) {
	if _, err := c.Write(request); err != nil {
		return nil, err
	}
	return http.ReadResponse(c.r, &http.Request{Method: method})
}

// cause prefers the context's error: a closed connection says nothing.
func cause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// stream sends a completion request and fills r. The clock starts right before
// the connection is taken.
func (c *client) stream(ctx context.Context, path, rid string, body []byte, r *Record) {
	if c.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("not answered within %v", c.timeout))
		defer cancel()
	}
	request := append(c.head(nil, http.MethodPost, path, rid, len(body)), body...)
	buf := make([]byte, 32<<10)
	r.Sent = time.Now()
	err := c.exchange(ctx, request, http.MethodPost, func(sc *stampedConn, resp *http.Response) error {
		if resp.StatusCode != http.StatusOK {
			b, _ := io.ReadAll(io.LimitReader(resp.Body, maxBody))
			return fmt.Errorf("%s: %s", resp.Status, errorMessage(b))
		}
		if t := resp.Header.Get("Content-Type"); !strings.HasPrefix(t, "text/event-stream") {
			return fmt.Errorf("the answer is %q, not a stream", t)
		}
		var p sseParser
		var at time.Time
		emit := func(data []byte) error { return r.event(at, data) }
		for {
			n, err := resp.Body.Read(buf)
			// The body's reader returns as soon as it has anything, so what it returns
			// came with the connection's last read.
			at = sc.readAt
			if perr := p.feed(buf[:n], emit); perr != nil {
				return perr
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("the stream broke: %w", err)
			}
		}
		if err := p.close(emit); err != nil {
			return err
		}
		return r.finish()
	})
	if err != nil {
		r.Err = err.Error()
	}
}

// call sends a small request and returns status and body.
func (c *client) call(ctx context.Context, method, path string, body []byte) (int, []byte, error) {
	var (
		status int
		out    []byte
	)
	request := append(c.head(nil, method, path, "", len(body)), body...)
	err := c.exchange(ctx, request, method, func(_ *stampedConn, resp *http.Response) error {
		status = resp.StatusCode
		var err error
		out, err = io.ReadAll(io.LimitReader(resp.Body, maxBody))
		return err
	})
	if err != nil {
		return 0, nil, fmt.Errorf("bench: %s %s: %w", method, path, err)
	}
	return status, out, nil
}
