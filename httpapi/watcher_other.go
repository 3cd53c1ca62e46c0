//go:build !linux

package httpapi

import "net"

// watcher does nothing here: without epoll a hang-up is noticed by the next
// write's error. docs/ENVIRONMENT.md says so.
type watcher struct{}

func newWatcher() (*watcher, error)    { return &watcher{}, nil }
func (w *watcher) add(*conn, net.Conn) {}
func (w *watcher) remove(*conn)        {}
func (w *watcher) close()              {}
