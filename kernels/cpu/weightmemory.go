package cpu

import (
	"errors"
	"fmt"
	"unsafe"
)

const (
	// hugePage is the size of a large page on the CPUs that have assembly here.
	hugePage = 2 << 20
	// weightChunk is how much address space is mapped at once for weights. What a
	// weight leaves of a chunk is used by the next ones; pages that are never
	// touched cost nothing.
	weightChunk = 64 << 20
)

// weightMemory hands out memory for packed weights from large mappings that the
// kernel may back with large pages: a decode step reads every weight once, a tile
// is one or two small pages, and their address translations were a fifth of its
// time (SmolLM2-135M, two threads, 240 against 290 tok/s in alternating runs).
type weightMemory struct {
	chunks []memory
	free   []byte
}

// take returns n zeroed bytes, aligned to a cache line.
func (w *weightMemory) take(n int64) ([]byte, error) {
	if n < 0 || n > 1<<46 {
		return nil, fmt.Errorf("cpu: cannot map %d bytes", n)
	}
	size := int(n+63) &^ 63
	if size > len(w.free) {
		m, err := newMemory(int64(max(size, weightChunk) + hugePage))
		if err != nil {
			return nil, err
		}
		adviseHuge(m.bytes)
		w.chunks = append(w.chunks, m)
		start := uintptr(unsafe.Pointer(unsafe.SliceData(m.bytes)))
		w.free = m.bytes[-start&(hugePage-1):]
	}
	b := w.free[:n:n]
	w.free = w.free[size:]
	return b, nil
}

// close unmaps everything.
func (w *weightMemory) close() error {
	var errs []error
	for i := range w.chunks {
		errs = append(errs, w.chunks[i].close())
	}
	w.chunks, w.free = nil, nil
	return errors.Join(errs...)
}
