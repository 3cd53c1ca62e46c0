//go:build !unix

package cpu

import (
	"fmt"
	"unsafe"
)

// memory is zeroed memory; without mmap it lies in the Go heap.
type memory struct {
	bytes []byte
}

// newMemory allocates n bytes.
func newMemory(n int64) (memory, error) {
	if n < 0 || int64(int(n)) != n {
		return memory{}, fmt.Errorf("cpu: cannot allocate %d bytes", n)
	}
	words := make([]uint64, (n+7)/8)
	return memory{unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)}, nil
}

// floats views the memory as float32.
func (m memory) floats() []float32 {
	if len(m.bytes) < 4 {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(m.bytes))), len(m.bytes)/4)
}

// close drops the memory.
func (m *memory) close() error {
	m.bytes = nil
	return nil
}
