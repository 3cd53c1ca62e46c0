package httpapi

import (
	"fmt"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// userTimeout is how long sent bytes may go unacknowledged before the kernel
// gives a connection up, in ms: a host that lost power sends no FIN.
const userTimeout = 30_000

// watcher notices hang-ups without reading or writing: a second epoll set beside
// the Go runtime's waits for EPOLLRDHUP on every connection. A half-close raises
// the same event and counts as gone, as in nginx.
type watcher struct {
	ep    int
	wake  int // an eventfd that ends the loop
	done  chan struct{}
	once  sync.Once
	mu    sync.Mutex
	conns map[uint64]*conn
}

// newWatcher starts the process's watcher.
func newWatcher() (*watcher, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("httpapi: hang-up watcher: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		unix.Close(ep)
		return nil, fmt.Errorf("httpapi: hang-up watcher: %w", err)
	}
	w := &watcher{ep: ep, wake: wake, done: make(chan struct{}), conns: map[uint64]*conn{}}
	ev := unix.EpollEvent{Events: unix.EPOLLIN} // data 0: no connection has this id
	if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, wake, &ev); err != nil {
		return nil, fmt.Errorf("httpapi: hang-up watcher: %w", err)
	}
	go w.loop()
	return w, nil
}

// add watches c. The event carries our id, never the descriptor, which is reused.
func (w *watcher) add(c *conn, nc net.Conn) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return
	}
	w.mu.Lock()
	w.conns[c.id] = c
	w.mu.Unlock()
	_ = raw.Control(func(fd uintptr) {
		ev := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(uint32(c.id)), Pad: int32(uint32(c.id >> 32))}
		_ = unix.EpollCtl(w.ep, unix.EPOLL_CTL_ADD, int(fd), &ev)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, userTimeout)
	})
}

// remove forgets c; closing its descriptor takes it out of the epoll set.
func (w *watcher) remove(c *conn) {
	w.mu.Lock()
	delete(w.conns, c.id)
	w.mu.Unlock()
}

// loop waits for hang-ups until close.
func (w *watcher) loop() {
	defer close(w.done)
	events := make([]unix.EpollEvent, 128)
	for {
		n, err := unix.EpollWait(w.ep, events, -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return
		}
		for _, ev := range events[:n] {
			id := uint64(uint32(ev.Fd)) | uint64(uint32(ev.Pad))<<32
			if id == 0 {
				return
			}
			w.mu.Lock()
			c := w.conns[id]
			w.mu.Unlock()
			if c != nil {
				c.hungUp()
			}
		}
	}
}

// close ends the watcher. It may be called again.
func (w *watcher) close() {
	w.once.Do(func() {
		one := [8]byte{1}
		_, _ = unix.Write(w.wake, one[:])
		<-w.done
		unix.Close(w.ep)
		unix.Close(w.wake)
	})
}
