package cpu

import (
	"fmt"

	"waybill/kernels"
)

// buffer is a kernels.Buffer of float32 in host memory.
type buffer struct {
	data []float32
	mem  memory
}

// Len returns the capacity in elements.
func (b *buffer) Len() int { return len(b.data) }

// newBuffer maps a buffer of n elements.
func newBuffer(n int) (*buffer, error) {
	if n < 0 {
		return nil, fmt.Errorf("cpu: buffer of %d elements", n)
	}
	m, err := newMemory(int64(n) * 4)
	if err != nil {
		return nil, err
	}
	return &buffer{data: m.floats()[:n:n], mem: m}, nil
}

// floats returns the first n elements of b; a shorter buffer is a bug.
func floats(b kernels.Buffer, n int, what string) []float32 {
	buf, ok := b.(*buffer)
	if !ok {
		panic(bug("%s is a %T", what, b))
	}
	if n < 0 || n > len(buf.data) {
		panic(bug("%s has %d elements, want %d", what, len(buf.data), n))
	}
	return buf.data[:n:n]
}
