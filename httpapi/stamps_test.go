//go:build linux

package httpapi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pair returns both ends of a loopback connection accepted from a prepared
// listener.
func pair(t *testing.T) (server, client net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	prepareListener(ln)
	if client, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close(); client.Close() })
	return server, client
}

// stamped returns a reader of nc, or skips where the kernel has no stamps.
func stamped(t *testing.T, nc net.Conn) *stampedFD {
	t.Helper()
	var s stampedFD
	if s.init(nc); !s.usable() {
		t.Skip("this kernel has no SO_TIMESTAMPNS for TCP")
	}
	return &s
}

func TestReadsTellHowLongBytesWaitedInTheKernel(t *testing.T) {
	server, client := pair(t)
	s := stamped(t, server)
	buf := make([]byte, 100)
	read := func(wait time.Duration) int64 {
		t.Helper()
		if _, err := client.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(wait)
		n, ns, err := s.read(buf)
		if err != nil || string(buf[:n]) != "hello" {
			t.Fatalf("read %q, %v", buf[:n], err)
		}
		return ns
	}
	// The kernel turns stamps on in its own time.
	eventually(t, "a read has a stamp", func() bool { return read(0) >= 0 })
	for _, wait := range []time.Duration{0, 30 * time.Millisecond, 0, 60 * time.Millisecond} {
		if d := time.Duration(read(wait)); d < wait || d > wait+liveness {
			t.Errorf("%v in the kernel, waited %v", d, wait)
		}
	}
}

func TestStampedReadsKeepDeadlinesAndEnds(t *testing.T) {
	server, client := pair(t)
	s := stamped(t, server)
	buf := make([]byte, 100)
	_ = server.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	begin := time.Now()
	_, _, err := s.read(buf)
	var ne net.Error
	if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &ne) || !ne.Timeout() || time.Since(begin) > liveness {
		t.Errorf("deadline: %v after %v", err, time.Since(begin))
	}
	_ = server.SetReadDeadline(time.Time{})
	go func() {
		time.Sleep(10 * time.Millisecond)
		_, _ = client.Write([]byte("late"))
		_ = client.(*net.TCPConn).CloseWrite()
	}()
	if n, _, err := s.read(buf); err != nil || string(buf[:n]) != "late" {
		t.Errorf("a blocked read: %q, %v", buf[:n], err)
	}
	if n, _, err := s.read(buf); n != 0 || err != io.EOF {
		t.Errorf("at the end: %d, %v", n, err)
	}
	server.Close()
	if _, _, err := s.read(buf); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after close: %v, want net.ErrClosed", err)
	}
	server, rude := pair(t)
	s = stamped(t, server)
	_ = rude.(*net.TCPConn).SetLinger(0)
	rude.Close()
	if _, _, err := s.read(buf); !errors.Is(err, unix.ECONNRESET) && err != io.EOF {
		t.Errorf("after a reset: %v", err)
	}
}

func TestStampedReadsAllocateNothing(t *testing.T) {
	server, client := pair(t)
	s := stamped(t, server)
	buf, msg := make([]byte, 100), []byte("x")
	if n := testing.AllocsPerRun(200, func() {
		if _, err := client.Write(msg); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.read(buf); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per read", n)
	}
}

func TestKernelTimeRefusesWhatIsNoStamp(t *testing.T) {
	msg := make([]byte, unix.CmsgSpace(16))
	binary.NativeEndian.PutUint64(msg, uint64(unix.CmsgLen(16)))
	binary.NativeEndian.PutUint32(msg[8:], unix.SOL_SOCKET)
	binary.NativeEndian.PutUint32(msg[12:], unix.SCM_TIMESTAMPNS)
	binary.NativeEndian.PutUint64(msg[unix.CmsgLen(0):], 100)
	binary.NativeEndian.PutUint64(msg[unix.CmsgLen(0)+8:], 5)
	const at = 100e9 + 5
	if got := kernelTime(msg, at+1234); got != 1234 {
		t.Errorf("got %d, want 1234", got)
	}
	for name, got := range map[string]int64{
		"a clock that went back": kernelTime(msg, at-1), "a clock that jumped": kernelTime(msg, at+int64(time.Hour)),
		"nothing": kernelTime(nil, at), "half": kernelTime(msg[:20], at), "a header": kernelTime(msg[:unix.SizeofCmsghdr], at),
	} {
		if got != -1 {
			t.Errorf("%s: %d, want -1", name, got)
		}
	}
	binary.NativeEndian.PutUint32(msg[12:], unix.SCM_RIGHTS)
	if got := kernelTime(msg, at); got != -1 {
		t.Errorf("another message: %d, want -1", got)
	}
}

func TestDumpShowsTheKernelsShare(t *testing.T) {
	s := startServer(t, withDump)
	own, _ := pair(t)
	stamped(t, own) // skips where there are none
	n := 0
	// The kernel turns stamps on in its own time.
	eventually(t, "a line has the kernel's share", func() bool {
		n++
		rid := fmt.Sprintf("k-%d", n)
		s.post("/v1/completions", short, "X-Request-Id: "+rid).answer()
		line := s.dumpLine(rid)
		return line["kernel"] != "" && millis(t, line, "kernel") >= 0
	})
}
