package cpu

import "unsafe"

func init() {
	avx512.peak = func() int {
		dotPeakAVX512(4000)
		return 4000 * 2048
	}
	avx512.read = func(b []byte) { readAVX512(pointer(unsafe.SliceData(b)), len(b)) }
}

// tilePeak is kernelSet.peak of the tile unit.
func tilePeak() int {
	config := [64]byte{0: 1}
	for r := range 8 {
		config[16+2*r], config[48+r] = 64, 16
	}
	tilePeakAMX(pointer(&config), 500)
	return 500 * 131072
}

//go:noescape
func dotPeakAVX512(rounds int)

//go:noescape
func readAVX512(from pointer, n int)

//go:noescape
func tilePeakAMX(config pointer, rounds int)
