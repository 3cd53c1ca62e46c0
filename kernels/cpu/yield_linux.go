package cpu

import "golang.org/x/sys/unix"

// yieldCore lets another OS thread run on this core. runtime.Gosched would not:
// the thread that is waited for may have no core while it has a P.
func yieldCore() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
