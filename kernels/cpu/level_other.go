//go:build !amd64

package cpu

func init() { levels = []level{{&generic, func() bool { return true }}} }
