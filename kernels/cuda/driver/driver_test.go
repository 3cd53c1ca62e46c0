//go:build cuda

package driver

import (
	"errors"
	"testing"

	"gorgonia.org/cu"
)

// These run on a machine without a GPU; with one they say less.

func TestNoCallBeforeLoadTouchesTheDriver(t *testing.T) {
	if _, err := cu.NumDevices(); loadErr == nil && err != cu.NotInitialized {
		t.Errorf("NumDevices before Load: %v, want NotInitialized", err)
	}
}

func TestLoadWithoutDriverIsAnError(t *testing.T) {
	err := Load()
	if err == nil {
		t.Skip("this machine has a GPU")
	}
	if !errors.Is(err, ErrNoDriver) {
		t.Skip("this machine has a driver but no usable GPU:", err)
	}
	if _, err := cu.NumDevices(); err != cu.NotInitialized {
		t.Errorf("NumDevices after a failed Load: %v, want NotInitialized", err)
	}
}

func TestArgumentsAreAlignedAndReused(t *testing.T) {
	var a Args
	for range 2 {
		a.Reset().Int(1).Ptr(2).Float(3).Int(4).Double(5)
		want := []uint32{0, 8, 16, 20, 24}
		for i, o := range a.offsets {
			if o != want[i] {
				t.Errorf("argument %d at %d, want %d", i, o, want[i])
			}
		}
		if len(a.buf) != 32 {
			t.Errorf("length %d, want 32", len(a.buf))
		}
	}
	if n := testing.AllocsPerRun(100, func() { a.Reset().Int(1).Ptr(2).Float(3) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}
