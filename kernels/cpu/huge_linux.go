package cpu

import "golang.org/x/sys/unix"

// adviseHuge asks for large pages. A kernel that has none says so, and nothing is
// lost but speed.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }
