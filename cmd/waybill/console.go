package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"waybill/httpapi"
)

// console decides whether /console is served: always on a loopback address, and
// elsewhere if it is asked for and a key is needed.
func (c *serveCmd) console() (httpapi.Console, error) {
	loopback := c.Host == "localhost"
	if ip := net.ParseIP(c.Host); ip != nil {
		loopback = ip.IsLoopback()
	}
	if c.Console && !loopback && c.APIKey == "" {
		return httpapi.Console{}, errors.New("--console on an address that is not loopback needs --api-key: it shows who asks what")
	}
	return httpapi.Console{
		Enabled: loopback || c.Console,
		Drain:   func() { _ = syscall.Kill(os.Getpid(), syscall.SIGTERM) },
		Log: func(action, target, peer string) {
			fmt.Fprintf(os.Stderr, "console: %s %s by %s\n", action, target, peer)
		},
	}, nil
}
