package cpu

import (
	"unsafe"

	"waybill/kernels"
)

func init() {
	type scores func(dst, q, keys pointer, dim, rows int)
	type mix func(o, p, values pointer, n, dim int)
	set := func(d kernels.DType, score scores, mix1, mix4 mix) {
		a := &avx2.attention[d]
		a.mix[1] = mixKernel(mix1)
		for rows := mixRows; rows <= attentionRows; rows += mixRows {
			a.scores[rows] = scoresByTile(func(dst, q, keys pointer, dim int) { score(dst, q, keys, dim, rows) }, d, prefetchAMD64)
			a.mix[rows] = mixByTile(func(o, p, values pointer, n, dim int) {
				for r := 0; r < rows; r += mixRows {
					mix4(unsafe.Add(o, 4*r*dim), unsafe.Add(p, 4*r*spanLen), values, n, dim)
				}
			}, d, prefetchAMD64)
		}
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
