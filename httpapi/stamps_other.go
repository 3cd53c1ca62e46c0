//go:build !linux

package httpapi

import "net"

// prepareListener does nothing here.
func prepareListener(net.Listener) {}

// stampedFD is never usable: only Linux tells when it received bytes.
type stampedFD struct{}

func (*stampedFD) init(net.Conn)                   {}
func (*stampedFD) usable() bool                    { return false }
func (*stampedFD) read([]byte) (int, int64, error) { panic("BUG: httpapi: a read without timestamps") }
