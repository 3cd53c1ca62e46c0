package cpu

import (
	"fmt"
	"unsafe"
)

// arena is scratch memory that grows to the largest size asked for and is kept.
// Its contents are lost when it grows.
type arena struct {
	mem memory
}

// grow makes the arena at least n bytes.
func (a *arena) grow(n int) {
	if n <= len(a.mem.bytes) {
		return
	}
	mem, err := newMemory(int64(n+n/4+1<<16) &^ 0xffff)
	if err != nil {
		// A step cannot go on without it, and the owner of the step turns a panic
		// into an error of the requests.
		panic(fmt.Errorf("cpu: scratch memory: %w", err))
	}
	if err := a.mem.close(); err != nil {
		panic(err)
	}
	a.mem = mem
}

// at returns the address of byte i.
func (a *arena) at(i int) pointer {
	return unsafe.Pointer(&a.mem.bytes[i])
}

// scratch is one thread's own memory.
type scratch struct {
	// tile holds unpacked tiles of a weight: quants, then scales and minimums.
	tile arena
	// sums is where a panel's sums go when a tile has fewer than 16 rows.
	sums [maxPanel * tileRows]float32
	// gate is gates and ups of a few panels on their way to int8.
	gate arena
	// call and work serve tile kernels.
	call tileCall
	work arena
	// short holds a part of a key on its way to the cache.
	short [64]uint16
	// attention is what a group of rows needs.
	attention attentionScratch
	_         [64]byte
}
