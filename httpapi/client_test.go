package httpapi

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// client is a raw HTTP connection.
type client struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

func (s *testServer) dial() *client {
	s.t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(3 * liveness))
	return &client{c, s.t, bufio.NewReaderSize(c, 64<<10)}
}

// request formats a request with a body and extra header lines.
func request(method, path, body string, headers ...string) string {
	h := method + " " + path + " HTTP/1.1\r\nHost: test\r\n"
	if method == "POST" {
		h += "Content-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n"
	}
	for _, l := range headers {
		h += l + "\r\n"
	}
	return h + "\r\n" + body
}

func (c *client) send(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Fatal(err)
	}
}

// chunk is a piece of a chunked body and the time at which it was complete.
type chunk struct {
	at   time.Time
	data string
}

// reply is an answer read from the wire.
type reply struct {
	t       testing.TB
	status  int
	proto   string
	header  map[string]string // names in lower case
	body    []byte
	chunks  []chunk
	chunked bool
}

func (r *reply) text() string { return string(r.body) }

// head reads status line and headers.
func (c *client) head() (*reply, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	f := strings.SplitN(strings.TrimRight(line, "\r\n"), " ", 3)
	if len(f) < 2 {
		return nil, fmt.Errorf("status line %q", line)
	}
	p := &reply{t: c.t, proto: f[0], header: map[string]string{}}
	if p.status, err = strconv.Atoi(f[1]); err != nil {
		return nil, err
	}
	for {
		line, err := c.r.ReadString('\n')
		if err != nil {
			return nil, err
		}
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			break
		}
		k, v, _ := strings.Cut(line, ": ")
		p.header[strings.ToLower(k)] = v
	}
	p.chunked = p.header["transfer-encoding"] == "chunked"
	return p, nil
}

// chunk reads one chunk; "" at the end of the body.
func (c *client) chunk() (string, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return "", err
	}
	n, err := strconv.ParseInt(strings.TrimRight(line, "\r\n"), 16, 32)
	if err != nil {
		return "", err
	}
	b := make([]byte, n+2)
	if _, err := io.ReadFull(c.r, b); err != nil {
		return "", err
	}
	if string(b[n:]) != "\r\n" {
		return "", fmt.Errorf("a chunk ends with %q", b[n:])
	}
	return string(b[:n]), nil
}

// read reads a whole answer.
func (c *client) read() (*reply, error) {
	p, err := c.head()
	if err != nil {
		return nil, err
	}
	switch n, has := p.header["content-length"]; {
	case p.chunked:
		for {
			s, err := c.chunk()
			if err != nil {
				return p, err
			}
			if s == "" {
				return p, nil
			}
			p.chunks = append(p.chunks, chunk{time.Now(), s})
			p.body = append(p.body, s...)
		}
	case has:
		l, err := strconv.Atoi(n)
		if err != nil {
			return p, err
		}
		p.body = make([]byte, l)
		_, err = io.ReadFull(c.r, p.body)
		return p, err
	default:
		p.body, err = io.ReadAll(c.r)
		return p, err
	}
}

// must reads a whole answer or fails the test.
func (c *client) must() *reply {
	c.t.Helper()
	p, err := c.read()
	if err != nil {
		c.t.Fatalf("reading the answer: %v", err)
	}
	return p
}

// post sends a request on a connection of its own.
func (s *testServer) post(path, body string, headers ...string) *reply {
	s.t.Helper()
	c := s.dial()
	defer c.Close()
	c.send(request("POST", path, body, headers...))
	return c.must()
}

func (s *testServer) get(path string, headers ...string) *reply {
	s.t.Helper()
	c := s.dial()
	defer c.Close()
	c.send(request("GET", path, "", headers...))
	return c.must()
}
