package cpu

import "waybill/kernels"

func init() {
	set := func(d kernels.DType, scores func(dst, q, keys pointer, dim, rows int), mix1, mix4 func(o, p, values pointer, n, dim int)) {
		a := &avx2.attention[d]
		for rows := mixRows; rows <= attentionRows; rows += mixRows {
			a.scores[rows] = func(dst, q, keys pointer, dim int) { scores(dst, q, keys, dim, rows) }
		}
		a.mix1, a.mix4 = mix1, mix4
	}
	set(kernels.F32, scoresF32AVX2, mixF32x1AVX2, mixF32x4AVX2)
	set(kernels.F16, scoresF16AVX2, mixF16x1AVX2, mixF16x4AVX2)
	set(kernels.BF16, scoresBF16AVX2, mixBF16x1AVX2, mixBF16x4AVX2)
}

//go:noescape
func scoresF32AVX2(dst, q, keys pointer, dim, rows int)

//go:noescape
func mixF32x1AVX2(o, p, values pointer, n, dim int)

//go:noescape
func mixF32x4AVX2(o, p, values pointer, n, dim int)

//go:noescape
func scoresF16AVX2(dst, q, keys pointer, dim, rows int)

//go:noescape
func mixF16x1AVX2(o, p, values pointer, n, dim int)

//go:noescape
func mixF16x4AVX2(o, p, values pointer, n, dim int)

//go:noescape
func scoresBF16AVX2(dst, q, keys pointer, dim, rows int)

//go:noescape
func mixBF16x1AVX2(o, p, values pointer, n, dim int)

//go:noescape
func mixBF16x4AVX2(o, p, values pointer, n, dim int)

// prefetchAMD64 asks for the n bytes at p, rounded up to two cache lines.
//
//go:noescape
func prefetchAMD64(p pointer, n int)
