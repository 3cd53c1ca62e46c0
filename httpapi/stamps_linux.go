package httpapi

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxKernelNs bounds a believable time in the kernel. Receive timestamps are
// wall-clock time, which may jump.
const maxKernelNs = int64(time.Minute)

// prepareListener turns on the kernel's receive timestamps, which accepted
// connections inherit: bytes that arrive before a connection is accepted have
// one as well. A system without them serves all the same.
func prepareListener(ln net.Listener) {
	sc, ok := ln.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	})
}

// stampedFD reads from a socket with the kernel's receive timestamp. It belongs
// to the connection's goroutine. Nothing is allocated per read: what passes
// between read and its callback lies in the struct.
type stampedFD struct {
	raw  syscall.RawConn
	call func(fd uintptr) bool
	buf  []byte
	n    int
	err  error
	oobn int
	oob  [64]byte // one SCM_TIMESTAMPNS takes 32
}

// init prepares reads from nc, if it is a socket with timestamps on.
func (s *stampedFD) init(nc net.Conn) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return
	}
	on := 0
	_ = raw.Control(func(fd uintptr) {
		on, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS)
	})
	if on != 0 {
		s.raw, s.call = raw, s.recv
	}
}

func (s *stampedFD) usable() bool { return s.raw != nil }

// recv is called when the socket may be readable; false waits for it.
func (s *stampedFD) recv(fd uintptr) bool {
	for {
		// The standard library's, since that of x/sys allocates an address.
		s.n, s.oobn, _, _, s.err = syscall.Recvmsg(int(fd), s.buf, s.oob[:], 0)
		if s.err != syscall.EINTR {
			return s.err != syscall.EAGAIN
		}
	}
}

// read reads into p as net.Conn's Read does, deadline and all, and returns the
// time that the newest byte read had spent in the kernel, or -1.
func (s *stampedFD) read(p []byte) (n int, kernelNs int64, err error) {
	if len(p) == 0 {
		return 0, -1, nil
	}
	s.buf = p
	err = s.raw.Read(s.call)
	s.buf = nil
	switch {
	case err != nil:
		return 0, -1, err
	case s.err != nil:
		return 0, -1, &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("recvmsg", s.err)}
	case s.n == 0:
		return 0, -1, io.EOF
	}
	return s.n, kernelTime(s.oob[:s.oobn], time.Now().UnixNano()), nil
}

// kernelTime returns the time from the receive timestamp in oob to now, or -1.
func kernelTime(oob []byte, now int64) int64 {
	if len(oob) < unix.SizeofCmsghdr {
		return -1
	}
	h, data, _, err := unix.ParseOneSocketControlMessage(oob)
	if err != nil || h.Level != unix.SOL_SOCKET || h.Type != unix.SCM_TIMESTAMPNS || len(data) < 16 {
		return -1
	}
	at := int64(binary.NativeEndian.Uint64(data))*1e9 + int64(binary.NativeEndian.Uint64(data[8:]))
	if ns := now - at; ns >= 0 && ns < maxKernelNs {
		return ns
	}
	return -1
}
