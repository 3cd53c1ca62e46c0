package cpu

import (
	"testing"

	"golang.org/x/sys/unix"

	"waybill/kernels"
)

// faults returns how often this process touched memory that the system had not
// handed out yet.
func faults(t *testing.T) int64 {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	return r.Minflt
}

// After Prefault no page is left that a step would be the first to touch. The size is
// no multiple of a piece or of a large page.
func TestPrefaultLeavesNothingToTouch(t *testing.T) {
	spec := kernels.CacheSpec{Layers: 3, NumKVHeads: 3, HeadDim: 64, BlockSize: 16, NumBlocks: 1111, DType: kernels.F16}
	c, err := newCache(spec, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Prefault(); err != nil {
		t.Fatal(err)
	}
	before := faults(t)
	touch(c.mem.bytes)
	pages := spec.Bytes() / 4096
	if n := faults(t) - before; n > pages/10 { // the test's own, a few
		t.Fatalf("%d faults in %d pages after Prefault", n, pages)
	}
}

// Where the system cannot be asked, touching does the same.
func TestTouchTouchesEveryPage(t *testing.T) {
	m, err := newMemory(5<<20 + 1)
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	touch(m.bytes)
	before := faults(t)
	touch(m.bytes)
	if n := faults(t) - before; n > 100 {
		t.Fatalf("%d faults in memory that was touched", n)
	}
	for i, b := range m.bytes {
		if b != 0 {
			t.Fatalf("byte %d is %d", i, b)
		}
	}
}
