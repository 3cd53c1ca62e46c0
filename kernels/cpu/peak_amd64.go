package cpu

func init() {
	avx512.peak = func() int {
		dotPeakAVX512(4000)
		return 4000 * 2048
	}
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
func tilePeakAMX(config pointer, rounds int)
