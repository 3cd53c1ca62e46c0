package cpu

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// gate is where workers park between steps: one futex for all. A channel would
// wake a worker through Go's scheduler, which took 90 µs from an idle core to the
// worker's first chunk where the futex takes 20 (medians, 2 virtual cores).
type gate struct {
	state atomic.Uint32
}

// The futex operations, private to this process (linux/futex.h).
const (
	futexWait = 128
	futexWake = 129
)

// set changes the state and wakes the workers unless it is gateShut.
func (g *gate) set(state uint32) {
	g.state.Store(state)
	if state != gateShut {
		const all = 1 << 30
		unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&g.state)), futexWake, all, 0, 0, 0)
	}
}

// wait returns the state as soon as it is not gateShut.
func (g *gate) wait() uint32 {
	for {
		if s := g.state.Load(); s != gateShut {
			return s
		}
		// Errors say that the state has changed or a signal came: look again.
		unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&g.state)), futexWait, uintptr(gateShut), 0, 0, 0)
	}
}
