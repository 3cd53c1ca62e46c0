package cpu

import (
	"fmt"
	"strings"
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

// A cache that does not fit is refused with both sizes, before any of it is touched.
func TestPrefaultRefusesWhatTheSystemDoesNotHave(t *testing.T) {
	free, ok := available()
	if !ok || free <= 0 {
		t.Fatalf("the system says it has %d bytes, %v", free, ok)
	}
	spec := kernels.CacheSpec{Layers: 1, NumKVHeads: 8, HeadDim: 128, BlockSize: 16, DType: kernels.F16}
	spec.NumBlocks = 1
	spec.NumBlocks = int((free + 1<<30) / spec.Bytes())
	c, err := newCache(spec, 2)
	if err != nil { // a system that does not overcommit says so first
		if !strings.Contains(err.Error(), fmt.Sprintf("cannot map %d bytes", spec.Bytes())) {
			t.Fatal(err)
		}
		return
	}
	defer c.Close()
	before := faults(t)
	if err = c.Prefault(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("takes %d MiB", spec.Bytes()>>20)) || !strings.Contains(err.Error(), "available") {
		t.Fatalf("%d MiB of %d: %v", spec.Bytes()>>20, free>>20, err)
	}
	if n := faults(t) - before; n > 1000 {
		t.Errorf("%d faults before it was refused", n)
	}
}
