//go:build !linux

package cpu

import "runtime"

// yieldCore lets other goroutines run.
func yieldCore() { runtime.Gosched() }
