//go:build !amd64

package cpu

import "sync/atomic"

var spun atomic.Uint32

// spin passes a little time; the atomic keeps the loop from being removed.
func spin(n int) {
	for range 8 * n {
		spun.Load()
	}
}
