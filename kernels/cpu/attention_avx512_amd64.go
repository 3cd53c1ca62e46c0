package cpu

import "waybill/kernels"

// attentionAVX512 is the code of attention for each type of cache.
var attentionAVX512 = [kernels.BF16 + 1]attentionKernels{
	kernels.F32: {
		scores: [attentionRows + 1]scoresKernel{4: scoresF32x4AVX512, 8: scoresF32x8AVX512, 12: scoresF32x12AVX512},
		mix:    [attentionRows + 1]mixKernel{1: mixF32x1AVX512, 4: mixF32x4AVX512, 8: mixF32x8AVX512, 12: mixF32x12AVX512},
	},
	kernels.F16: {
		scores: [attentionRows + 1]scoresKernel{4: scoresF16x4AVX512, 8: scoresF16x8AVX512, 12: scoresF16x12AVX512},
		mix:    [attentionRows + 1]mixKernel{1: mixF16x1AVX512, 4: mixF16x4AVX512, 8: mixF16x8AVX512, 12: mixF16x12AVX512},
	},
	kernels.BF16: {
		scores: [attentionRows + 1]scoresKernel{4: scoresBF16x4AVX512, 8: scoresBF16x8AVX512, 12: scoresBF16x12AVX512},
		mix:    [attentionRows + 1]mixKernel{1: mixBF16x1AVX512, 4: mixBF16x4AVX512, 8: mixBF16x8AVX512, 12: mixBF16x12AVX512},
	},
}

//go:noescape
func scoresF32x4AVX512(dst, q, keys pointer, tiles, dim int)

//go:noescape
func scoresF32x8AVX512(dst, q, keys pointer, tiles, dim int)

//go:noescape
func scoresF32x12AVX512(dst, q, keys pointer, tiles, dim int)

//go:noescape
func mixF32x1AVX512(o, p, values pointer, n, dim int)

//go:noescape
func mixF32x4AVX512(o, p, values pointer, n, dim int)

//go:noescape
func mixF32x8AVX512(o, p, values pointer, n, dim int)

//go:noescape
func mixF32x12AVX512(o, p, values pointer, n, dim int)

//go:noescape
func scoresF16x4AVX512(dst, q, keys pointer, tiles, dim int)

//go:noescape
func scoresF16x8AVX512(dst, q, keys pointer, tiles, dim int)

//go:noescape
func scoresF16x12AVX512(dst, q, keys pointer, tiles, dim int)

//go:noescape
func mixF16x1AVX512(o, p, values pointer, n, dim int)

//go:noescape
func mixF16x4AVX512(o, p, values pointer, n, dim int)

//go:noescape
func mixF16x8AVX512(o, p, values pointer, n, dim int)

//go:noescape
func mixF16x12AVX512(o, p, values pointer, n, dim int)

//go:noescape
func scoresBF16x4AVX512(dst, q, keys pointer, tiles, dim int)

//go:noescape
func scoresBF16x8AVX512(dst, q, keys pointer, tiles, dim int)

//go:noescape
func scoresBF16x12AVX512(dst, q, keys pointer, tiles, dim int)

//go:noescape
func mixBF16x1AVX512(o, p, values pointer, n, dim int)

//go:noescape
func mixBF16x4AVX512(o, p, values pointer, n, dim int)

//go:noescape
func mixBF16x8AVX512(o, p, values pointer, n, dim int)

//go:noescape
func mixBF16x12AVX512(o, p, values pointer, n, dim int)
