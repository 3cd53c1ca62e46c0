package cpu

import "golang.org/x/sys/unix"

// adviseHuge asks for large pages. A kernel that has none says so, and nothing is
// lost but speed.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }

// populate makes the system back all of b, which begins at a page. Kernels before 5.14
// cannot be asked: there it is touched.
func populate(b []byte) error {
	if err := unix.Madvise(b, unix.MADV_POPULATE_WRITE); err != unix.EINVAL {
		return err
	}
	touch(b)
	return nil
}
