package cpu

import (
	"unsafe"

	"waybill/kernels"
)

// avx2 is the kernel set for CPUs with AVX2, FMA and F16C.
var avx2 = kernelSet{
	name:         "avx2",
	heights:      []int{4, 2, 1},
	floatHeights: []int{4, 2, 1},
	quantize:     quantizeAVX2,
	halves:       halves256,
	kScales:      kScales256,
	narrow:       narrow256,
	sumSquares:   sumSquares256,
	add:          add256,
	scale:        scale256,
	blend:        blend256,
	silu:         silu256,
	gate:         gateRows(silu256),
	rotate:       rotate256,
	max:          max256,
	exp:          exp256,
	symmetric:    [maxPanel + 1]int8Kernel{1: symmetric1AVX2, 2: symmetric2AVX2, 4: symmetric4AVX2},
	affine:       [maxPanel + 1]int8Kernel{1: affine1AVX2, 2: affine2AVX2, 4: affine4AVX2},
	halfBlocks:   [maxPanel + 1]int8Kernel{1: halfBlocks1AVX2, 2: halfBlocks2AVX2, 4: halfBlocks4AVX2},
	fusedPanels:  8, // nibbles gain to 32 rows and more, bytes lose from there
	fused: [numFormats][maxPanel + 1]fusedKernel{
		tileQ8:  {1: fusedQ8x1AVX2, 2: fusedQ8x2AVX2, 4: fusedQ8x4AVX2},
		tileQ4:  {1: fusedQ4x1AVX2, 2: fusedQ4x2AVX2, 4: fusedQ4x4AVX2},
		tileQ4M: {1: fusedQ4Mx1AVX2, 2: fusedQ4Mx2AVX2, 4: fusedQ4Mx4AVX2},
	},
	float: [numFormats][maxPanel + 1]floatKernel{
		tileF32:  {1: floatF32x1AVX2, 2: floatF32x2AVX2, 4: floatF32x4AVX2},
		tileF16:  {1: floatF16x1AVX2, 2: floatF16x2AVX2, 4: floatF16x4AVX2},
		tileBF16: {1: floatBF16x1AVX2, 2: floatBF16x2AVX2, 4: floatBF16x4AVX2},
	},
}

func init() {
	for f := tileQ4; f < numFormats; f++ {
		avx2.unpackQuants[f] = unpackAVX2(f)
	}
}

// unpackAVX2 returns the function that unpacks the quants of f's tiles.
func unpackAVX2(f format) func(dst, tile pointer, blocks int) {
	kernel, lift := nibblesAVX2, f.lift()
	switch formats[f].bits {
	case 5:
		kernel = fiveBitsAVX2
	case 6:
		kernel = sixBitsAVX2
	}
	return func(dst, tile pointer, blocks int) { kernel(dst, tile, blocks, lift) }
}

// quantizeAVX2 fills a panel of quantized activations.
func quantizeAVX2(dst pointer, x []float32, stride int, s shape, blocks int) {
	height := s.height
	for m := range s.rows {
		quantizeRowAVX2(unsafe.Add(dst, m*quantElems), unsafe.Add(dst, height*quantElems+4*m),
			pointer(&x[m*stride]), height, blocks)
	}
}

// halves256 widens halves, a multiple of 8 of them.
func halves256(dst []float32, src []byte) {
	halvesAVX2(pointer(unsafe.SliceData(dst)), pointer(unsafe.SliceData(src)), len(dst))
}

// kScales256 is kScalesGeneric.
func kScales256(dst []float32, halves, bytes []byte, kind byteKind) {
	kernel, per := kScalesAVX2, superBlocks
	switch kind {
	case minimumBytes:
		kernel = kMinsAVX2
	case signedBytes:
		kernel, per = k6ScalesAVX2, 2*superBlocks
	}
	kernel(pointer(unsafe.SliceData(dst)), pointer(unsafe.SliceData(halves)), pointer(unsafe.SliceData(bytes)), len(dst)/per/tileRows)
}

// narrow256 rounds src to F16 or BF16.
func narrow256(dst []uint16, src []float32, d kernels.DType) {
	n := len(src) &^ 7
	if n > 0 {
		kernel := narrowBF16AVX2
		if d == kernels.F16 {
			kernel = narrowF16AVX2
		}
		kernel(pointer(unsafe.SliceData(dst)), pointer(unsafe.SliceData(src)), n)
	}
	narrow(dst[n:], src[n:], d)
}

//go:noescape
func narrowF16AVX2(dst, src pointer, n int)

//go:noescape
func narrowBF16AVX2(dst, src pointer, n int)

//go:noescape
func quantizeRowAVX2(dst, meta, x pointer, height, blocks int)

//go:noescape
func nibblesAVX2(dst, tile pointer, blocks int, lift int)

//go:noescape
func fiveBitsAVX2(dst, tile pointer, blocks int, lift int)

//go:noescape
func sixBitsAVX2(dst, tile pointer, blocks int, lift int)

//go:noescape
func halvesAVX2(dst, src pointer, n int)

//go:noescape
func kScalesAVX2(dst, halves, bytes pointer, supers int)

//go:noescape
func kMinsAVX2(dst, halves, bytes pointer, supers int)

//go:noescape
func k6ScalesAVX2(dst, halves, bytes pointer, supers int)
