#include "textflag.h"

// Matrix kernels for float tiles: one tile of 16 rows against a panel of 12, 8,
// 4, 2 or 1 rows of float32 activations. Products of up to 32 columns are summed
// from zero, then added to the row's sum: an error grows with 32 + K/32 terms
// instead of K.
//
// DI dst    DX bytes between rows of dst    SI tile    BX panel
// CX columns left    R8 columns left in the run of 32
// P (Z0-Z11) sums of the run, F (Z12-Z23) sums of row m of a panel of height H.

#define ROWS1(op, H) op(H, 0, Z0, Z12)
#define ROWS2(op, H) ROWS1(op, H); op(H, 1, Z1, Z13)
#define ROWS4(op, H) ROWS2(op, H); op(H, 2, Z2, Z14); op(H, 3, Z3, Z15)
#define ROWS8(op, H) ROWS4(op, H); op(H, 4, Z4, Z16); op(H, 5, Z5, Z17); op(H, 6, Z6, Z18); op(H, 7, Z7, Z19)
#define ROWS12(op, H) ROWS8(op, H); op(H, 8, Z8, Z20); op(H, 9, Z9, Z21); op(H, 10, Z10, Z22); op(H, 11, Z11, Z23)

#define ZERO(H, m, P, F) VPXORQ F, F, F
#define PART0(H, m, P, F) VPXORQ P, P, P
#define MULADD(H, m, P, F) VFMADD231PS.BCST (4*m)(BX), Z24, P
#define TOTAL(H, m, P, F) VADDPS P, F, F
#define STORE(H, m, P, F) VMOVUPS F, (DI); ADDQ DX, DI

// Memory is read ahead, as fused_avx512_amd64.s says; with 8 rows the same tiles
// went by twice as fast.
#define AHEAD 4096
#define LOADF32 PREFETCHT0 (AHEAD)(SI); VMOVUPS (SI), Z24; ADDQ $64, SI
#define LOADF16 PREFETCHT0 (AHEAD)(SI); VCVTPH2PS (SI), Z24; ADDQ $32, SI
#define LOADBF16 PREFETCHT0 (AHEAD)(SI); VPMOVZXWD (SI), Z24; VPSLLD $16, Z24, Z24; ADDQ $32, SI

#define FLOATS(ROWS, H, LOAD) \
	MOVQ    dst+0(FP), DI    \
	MOVQ    stride+8(FP), DX \
	MOVQ    tile+16(FP), SI  \
	MOVQ    panel+24(FP), BX \
	MOVQ    cols+32(FP), CX  \
	ROWS(ZERO, H)            \
run:                             \
	MOVQ    $32, R8          \
	CMPQ    CX, R8           \
	CMOVQLT CX, R8           \
	SUBQ    R8, CX           \
	ROWS(PART0, H)           \
column:                          \
	LOAD                     \
	ROWS(MULADD, H)          \
	ADDQ    $(4*H), BX       \
	DECQ    R8               \
	JNZ     column           \
	ROWS(TOTAL, H)           \
	TESTQ   CX, CX           \
	JNZ     run              \
	ROWS(STORE, H)           \
	VZEROUPPER               \
	RET

// func floatF32x12AVX512(dst pointer, stride int, tile, panel pointer, cols int)
TEXT ·floatF32x12AVX512(SB), NOSPLIT, $0-40
	FLOATS(ROWS12, 12, LOADF32)

// func floatF32x8AVX512(dst pointer, stride int, tile, panel pointer, cols int)
TEXT ·floatF32x8AVX512(SB), NOSPLIT, $0-40
	FLOATS(ROWS8, 8, LOADF32)

// func floatF32x4AVX512(dst pointer, stride int, tile, panel pointer, cols int)
TEXT ·floatF32x4AVX512(SB), NOSPLIT, $0-40
	FLOATS(ROWS4, 4, LOADF32)

// func floatF32x2AVX512(dst pointer, stride int, tile, panel pointer, cols int)
TEXT ·floatF32x2AVX512(SB), NOSPLIT, $0-40
	FLOATS(ROWS2, 2, LOADF32)

// func floatF32x1AVX512(dst pointer, stride int, tile, panel pointer, cols int)
TEXT ·floatF32x1AVX512(SB), NOSPLIT, $0-40
	FLOATS(ROWS1, 1, LOADF32)

// func floatF16x12AVX512(dst pointer, stride int, tile, panel pointer, cols int)
TEXT ·floatF16x12AVX512(SB), NOSPLIT, $0-40
	FLOATS(ROWS12, 12, LOADF16)

// func floatF16x8AVX512(dst pointer, stride int, tile, panel pointer, cols int)
TEXT ·floatF16x8AVX512(SB), NOSPLIT, $0-40
	FLOATS(ROWS8, 8, LOADF16)

// func floatF16x4AVX512(dst pointer, stride int, tile, panel pointer, cols int)
TEXT ·floatF16x4AVX512(SB), NOSPLIT, $0-40
	FLOATS(ROWS4, 4, LOADF16)

// func floatF16x2AVX512(dst pointer, stride int, tile, panel pointer, cols int)
TEXT ·floatF16x2AVX512(SB), NOSPLIT, $0-40
	FLOATS(ROWS2, 2, LOADF16)

// func floatF16x1AVX512(dst pointer, stride int, tile, panel pointer, cols int)
TEXT ·floatF16x1AVX512(SB), NOSPLIT, $0-40
	FLOATS(ROWS1, 1, LOADF16)

// func floatBF16x12AVX512(dst pointer, stride int, tile, panel pointer, cols int)
TEXT ·floatBF16x12AVX512(SB), NOSPLIT, $0-40
	FLOATS(ROWS12, 12, LOADBF16)

// func floatBF16x8AVX512(dst pointer, stride int, tile, panel pointer, cols int)
TEXT ·floatBF16x8AVX512(SB), NOSPLIT, $0-40
	FLOATS(ROWS8, 8, LOADBF16)

// func floatBF16x4AVX512(dst pointer, stride int, tile, panel pointer, cols int)
TEXT ·floatBF16x4AVX512(SB), NOSPLIT, $0-40
	FLOATS(ROWS4, 4, LOADBF16)

// func floatBF16x2AVX512(dst pointer, stride int, tile, panel pointer, cols int)
TEXT ·floatBF16x2AVX512(SB), NOSPLIT, $0-40
	FLOATS(ROWS2, 2, LOADBF16)

// func floatBF16x1AVX512(dst pointer, stride int, tile, panel pointer, cols int)
TEXT ·floatBF16x1AVX512(SB), NOSPLIT, $0-40
	FLOATS(ROWS1, 1, LOADBF16)
