//go:build unix

package cpu

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// memory is zeroed anonymous memory outside the Go heap: the collector neither
// scans it nor counts it in its pacing, and pages cost nothing until touched.
type memory struct {
	bytes []byte
}

// newMemory maps n bytes, aligned to a page.
func newMemory(n int64) (memory, error) {
	if n == 0 {
		return memory{}, nil
	}
	if n < 0 || int64(int(n)) != n {
		return memory{}, fmt.Errorf("cpu: cannot map %d bytes", n)
	}
	b, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return memory{}, fmt.Errorf("cpu: cannot map %d bytes: %w", n, err)
	}
	return memory{b}, nil
}

// floats views the memory as float32.
func (m memory) floats() []float32 {
	if len(m.bytes) < 4 {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(m.bytes))), len(m.bytes)/4)
}

// close unmaps. A second call does nothing.
func (m *memory) close() error {
	if m.bytes == nil {
		return nil
	}
	b := m.bytes
	m.bytes = nil
	if err := unix.Munmap(b); err != nil {
		return fmt.Errorf("cpu: cannot unmap %d bytes: %w", len(b), err)
	}
	return nil
}
