package cpu

import "unsafe"

// avx512 is the kernel set for CPUs with AVX-512 F, BW, DQ, VL and VNNI.
var avx512 = kernelSet{
	name:         "avx512vnni",
	heights:      []int{12, 8, 4, 2, 1},
	floatHeights: []int{12, 8, 4, 2, 1},
	quantize:     quantizeAVX512,
	halves: func(dst []float32, src []byte) {
		halvesAVX512(pointer(unsafe.SliceData(dst)), pointer(unsafe.SliceData(src)), len(dst))
	},
	kScales:     kScales256,
	narrow:      narrow256,
	sumSquares:  sumSquares512,
	add:         add512,
	scale:       scale512,
	blend:       blend512,
	silu:        silu512,
	gate:        gate512,
	rotate:      rotate512,
	max:         max512,
	exp:         exp512,
	attention:   attentionAVX512,
	symmetric:   [maxPanel + 1]int8Kernel{1: symmetric1AVX512, 2: symmetric2AVX512, 4: symmetric4AVX512, 8: symmetric8AVX512, 12: symmetric12AVX512},
	affine:      [maxPanel + 1]int8Kernel{1: affine1AVX512, 2: affine2AVX512, 4: affine4AVX512, 8: affine8AVX512, 12: affine12AVX512},
	halfBlocks:  [maxPanel + 1]int8Kernel{1: halfBlocks1AVX512, 2: halfBlocks2AVX512, 4: halfBlocks4AVX512, 8: halfBlocks8AVX512, 12: halfBlocks12AVX512},
	fusedPanels: 2, // with more, unpacking once is 9 % faster
	fused: [numFormats][maxPanel + 1]fusedKernel{
		tileQ8:  {1: fusedQ8x1AVX512, 2: fusedQ8x2AVX512, 4: fusedQ8x4AVX512, 8: fusedQ8x8AVX512, 12: fusedQ8x12AVX512},
		tileQ4:  {1: fusedQ4x1AVX512, 2: fusedQ4x2AVX512, 4: fusedQ4x4AVX512, 8: fusedQ4x8AVX512, 12: fusedQ4x12AVX512},
		tileQ4M: {1: fusedQ4Mx1AVX512, 2: fusedQ4Mx2AVX512, 4: fusedQ4Mx4AVX512, 8: fusedQ4Mx8AVX512, 12: fusedQ4Mx12AVX512},
		tileQ5:  {1: fusedQ5x1AVX512, 2: fusedQ5x2AVX512, 4: fusedQ5x4AVX512, 8: fusedQ5x8AVX512, 12: fusedQ5x12AVX512},
		tileQ5M: {1: fusedQ5Mx1AVX512, 2: fusedQ5Mx2AVX512, 4: fusedQ5Mx4AVX512, 8: fusedQ5Mx8AVX512, 12: fusedQ5Mx12AVX512},
		tileQ4K: {1: fusedQ4Kx1AVX512, 2: fusedQ4Kx2AVX512, 4: fusedQ4Kx4AVX512, 8: fusedQ4Kx8AVX512, 12: fusedQ4Kx12AVX512},
		tileQ5K: {1: fusedQ5Kx1AVX512, 2: fusedQ5Kx2AVX512, 4: fusedQ5Kx4AVX512, 8: fusedQ5Kx8AVX512, 12: fusedQ5Kx12AVX512},
		tileQ6K: {1: fusedQ6Kx1AVX512, 2: fusedQ6Kx2AVX512, 4: fusedQ6Kx4AVX512, 8: fusedQ6Kx8AVX512},
	},
	float: [numFormats][maxPanel + 1]floatKernel{
		tileF32:  {1: floatF32x1AVX512, 2: floatF32x2AVX512, 4: floatF32x4AVX512, 8: floatF32x8AVX512, 12: floatF32x12AVX512},
		tileF16:  {1: floatF16x1AVX512, 2: floatF16x2AVX512, 4: floatF16x4AVX512, 8: floatF16x8AVX512, 12: floatF16x12AVX512},
		tileBF16: {1: floatBF16x1AVX512, 2: floatBF16x2AVX512, 4: floatBF16x4AVX512, 8: floatBF16x8AVX512, 12: floatBF16x12AVX512},
	},
}

func init() {
	for f := tileQ4; f < numFormats; f++ {
		avx512.unpackQuants[f] = unpackAVX2(f)
		if formats[f].bits == 4 {
			avx512.unpackQuants[f] = func(dst, tile pointer, blocks int) { nibblesAVX512(dst, tile, blocks, f.lift()) }
		}
	}
}

// quantizeAVX512 fills a panel of quantized activations.
func quantizeAVX512(dst pointer, x []float32, stride int, s shape, blocks int) {
	height := s.height
	for m := range s.rows {
		quantizeRowAVX512(unsafe.Add(dst, m*quantElems), unsafe.Add(dst, height*quantElems+4*m),
			pointer(&x[m*stride]), height, blocks)
	}
}

//go:noescape
func quantizeRowAVX512(dst, meta, x pointer, height, blocks int)

//go:noescape
func nibblesAVX512(dst, tile pointer, blocks int, lift int)

//go:noescape
func halvesAVX512(dst, src pointer, n int)
