//go:build !linux

package cpu

// available knows nothing here.
func available() (n int64, ok bool) { return 0, false }
