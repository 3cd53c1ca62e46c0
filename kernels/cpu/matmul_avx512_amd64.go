package cpu

// The matrix kernels of the AVX-512 level, by kind and height of the panel.

//go:noescape
func symmetric1AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)

//go:noescape
func symmetric2AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)

//go:noescape
func symmetric4AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)

//go:noescape
func symmetric8AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)

//go:noescape
func symmetric12AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)

//go:noescape
func affine1AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)

//go:noescape
func affine2AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)

//go:noescape
func affine4AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)

//go:noescape
func affine8AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)

//go:noescape
func affine12AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)

//go:noescape
func halfBlocks1AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)

//go:noescape
func halfBlocks2AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)

//go:noescape
func halfBlocks4AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)

//go:noescape
func halfBlocks8AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)

//go:noescape
func halfBlocks12AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)

//go:noescape
func floatF32x1AVX512(dst pointer, stride int, tile, panel pointer, cols int)

//go:noescape
func floatF32x2AVX512(dst pointer, stride int, tile, panel pointer, cols int)

//go:noescape
func floatF32x4AVX512(dst pointer, stride int, tile, panel pointer, cols int)

//go:noescape
func floatF32x8AVX512(dst pointer, stride int, tile, panel pointer, cols int)

//go:noescape
func floatF32x12AVX512(dst pointer, stride int, tile, panel pointer, cols int)

//go:noescape
func floatF16x1AVX512(dst pointer, stride int, tile, panel pointer, cols int)

//go:noescape
func floatF16x2AVX512(dst pointer, stride int, tile, panel pointer, cols int)

//go:noescape
func floatF16x4AVX512(dst pointer, stride int, tile, panel pointer, cols int)

//go:noescape
func floatF16x8AVX512(dst pointer, stride int, tile, panel pointer, cols int)

//go:noescape
func floatF16x12AVX512(dst pointer, stride int, tile, panel pointer, cols int)

//go:noescape
func floatBF16x1AVX512(dst pointer, stride int, tile, panel pointer, cols int)

//go:noescape
func floatBF16x2AVX512(dst pointer, stride int, tile, panel pointer, cols int)

//go:noescape
func floatBF16x4AVX512(dst pointer, stride int, tile, panel pointer, cols int)

//go:noescape
func floatBF16x8AVX512(dst pointer, stride int, tile, panel pointer, cols int)

//go:noescape
func floatBF16x12AVX512(dst pointer, stride int, tile, panel pointer, cols int)

//go:noescape
func fusedQ4Mx12AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ4Mx8AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ4Mx4AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ4Mx2AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ4Mx1AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ4x12AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ4x8AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ4x4AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ4x2AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ4x1AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ8x12AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ8x8AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ8x4AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ8x2AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ8x1AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ5x12AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ5x8AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ5x4AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ5x2AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ5x1AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ5Mx12AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ5Mx8AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ5Mx4AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ5Mx2AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ5Mx1AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ4Kx12AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ4Kx8AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ4Kx4AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ4Kx2AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ4Kx1AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ5Kx12AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ5Kx8AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ5Kx4AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ5Kx2AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ5Kx1AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ6Kx8AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ6Kx4AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ6Kx2AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

//go:noescape
func fusedQ6Kx1AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
