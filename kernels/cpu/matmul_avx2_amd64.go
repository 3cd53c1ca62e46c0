package cpu

// The matrix kernels of the AVX2 level, by kind and height of the panel.

//go:noescape
func symmetric4AVX2(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)

//go:noescape
func symmetric2AVX2(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)

//go:noescape
func symmetric1AVX2(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)

//go:noescape
func affine4AVX2(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)

//go:noescape
func affine2AVX2(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)

//go:noescape
func affine1AVX2(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)

//go:noescape
func halfBlocks4AVX2(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)

//go:noescape
func halfBlocks2AVX2(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)

//go:noescape
func halfBlocks1AVX2(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)

//go:noescape
func floatF32x4AVX2(dst pointer, stride int, tile, panel pointer, cols int)

//go:noescape
func floatF32x2AVX2(dst pointer, stride int, tile, panel pointer, cols int)

//go:noescape
func floatF32x1AVX2(dst pointer, stride int, tile, panel pointer, cols int)

//go:noescape
func floatF16x4AVX2(dst pointer, stride int, tile, panel pointer, cols int)

//go:noescape
func floatF16x2AVX2(dst pointer, stride int, tile, panel pointer, cols int)

//go:noescape
func floatF16x1AVX2(dst pointer, stride int, tile, panel pointer, cols int)

//go:noescape
func floatBF16x4AVX2(dst pointer, stride int, tile, panel pointer, cols int)

//go:noescape
func floatBF16x2AVX2(dst pointer, stride int, tile, panel pointer, cols int)

//go:noescape
func floatBF16x1AVX2(dst pointer, stride int, tile, panel pointer, cols int)

//go:noescape
func fusedQ4Mx4AVX2(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ4Mx2AVX2(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ4Mx1AVX2(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ4x4AVX2(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ4x2AVX2(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ4x1AVX2(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ8x4AVX2(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ8x2AVX2(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ8x1AVX2(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
