package cpu

import (
	"sync"
	"unsafe"

	"github.com/klauspost/cpuid/v2"
	"golang.org/x/sys/unix"
)

// amx is the AVX-512 level with a tile unit beside it. Its integers are exact and
// its float32 sums are made in the same order, so the two levels agree bit for
// bit, and panels of one or two rows, where the tile unit would be idle for most
// of its rows, keep the vector kernels.
var amx kernelSet

// tileLevels returns the levels above those of vectors.
func tileLevels() []level {
	amx = avx512
	amx.name = "amx"
	amx.heights = []int{16}
	amx.padded = [maxPanel + 1]int{1: 4, 2: 4, 3: 4, 4: 4, 5: 8, 6: 8, 7: 8, 8: 8, 9: 12, 10: 12, 11: 12, 12: 12, 13: 16, 14: 16, 15: 16}
	amx.peak = tilePeak
	amx.tiles = &tileKernels{
		affine:    [maxPanel + 1]tileKernel{4: affine4AMX, 8: affine8AMX, 12: affine12AMX, 16: affine16AMX},
		symmetric: [maxPanel + 1]tileKernel{4: symmetric4AMX, 8: symmetric8AMX, 12: symmetric12AMX, 16: symmetric16AMX},
	}
	return []level{{&amx, amxUsable}}
}

// amxUsable reports whether the CPU has int8 tiles and the kernel lets this
// process use them: tile registers are 8 KiB a thread, so Linux wants to be asked
// (Documentation/arch/x86/xstate.rst). The permission is the process's, for good.
var amxUsable = sync.OnceValue(func() bool {
	if !cpuid.CPU.Supports(append(avx512Features, cpuid.AMXTILE, cpuid.AMXINT8)...) {
		return false
	}
	const (
		getPermission = 0x1022
		askPermission = 0x1023
		tileData      = 18
	)
	if _, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, askPermission, tileData, 0); errno != 0 {
		return false
	}
	var granted uint64
	_, _, errno := unix.RawSyscall(unix.SYS_ARCH_PRCTL, getPermission, uintptr(unsafe.Pointer(&granted)), 0)
	return errno == 0 && granted>>tileData&1 == 1
})

//go:noescape
func affine16AMX(call *tileCall)

//go:noescape
func affine12AMX(call *tileCall)

//go:noescape
func affine8AMX(call *tileCall)

//go:noescape
func affine4AMX(call *tileCall)

//go:noescape
func symmetric16AMX(call *tileCall)

//go:noescape
func symmetric12AMX(call *tileCall)

//go:noescape
func symmetric8AMX(call *tileCall)

//go:noescape
func symmetric4AMX(call *tileCall)
