#include "textflag.h"

// Matrix kernels for float tiles with AVX2: float_avx512_amd64.s in two halves
// of eight rows, for panels of 4, 2 or 1, with the same results.
//
// DI dst    DX bytes between rows of dst    SI tile    BX panel   R10 halves
// CX columns left    R8 columns left in the run of 32
// P (Y0-Y3) sums of the run, F (Y4-Y7) sums of row m of a panel of height H.

#define ROWS1(op, H) op(H, 0, Y0, Y4)
#define ROWS2(op, H) ROWS1(op, H); op(H, 1, Y1, Y5)
#define ROWS4(op, H) ROWS2(op, H); op(H, 2, Y2, Y6); op(H, 3, Y3, Y7)

#define ZERO(H, m, P, F) VPXOR F, F, F
#define PART0(H, m, P, F) VPXOR P, P, P
#define MULADD(H, m, P, F) VBROADCASTSS (4*m)(BX), Y9; VFMADD231PS Y9, Y8, P
#define TOTAL(H, m, P, F) VADDPS P, F, F
#define STORE(H, m, P, F) VMOVUPS F, (R8); ADDQ DX, R8

#define LOADF32 VMOVUPS (SI), Y8; ADDQ $64, SI
#define LOADF16 VCVTPH2PS (SI), Y8; ADDQ $32, SI
#define LOADBF16 VPMOVZXWD (SI), Y8; VPSLLD $16, Y8, Y8; ADDQ $32, SI

// SIZE is the bytes of an element.
#define FLOATS(ROWS, H, LOAD, SIZE) \
	MOVQ    dst+0(FP), DI    \
	MOVQ    stride+8(FP), DX \
	MOVQ    $2, R10          \
half:                            \
	MOVQ    tile+16(FP), SI  \
	MOVQ    panel+24(FP), BX \
	MOVQ    cols+32(FP), CX  \
	CMPQ    R10, $2          \
	JEQ     first            \
	ADDQ    $(8*SIZE), SI    \
first:                           \
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
	MOVQ    DI, R8           \
	ROWS(STORE, H)           \
	ADDQ    $32, DI          \
	DECQ    R10              \
	JNZ     half             \
	VZEROUPPER               \
	RET

// func floatF32x4AVX2(dst pointer, stride int, tile, panel pointer, cols int)
TEXT ·floatF32x4AVX2(SB), NOSPLIT, $0-40
	FLOATS(ROWS4, 4, LOADF32, 4)

// func floatF32x2AVX2(dst pointer, stride int, tile, panel pointer, cols int)
TEXT ·floatF32x2AVX2(SB), NOSPLIT, $0-40
	FLOATS(ROWS2, 2, LOADF32, 4)

// func floatF32x1AVX2(dst pointer, stride int, tile, panel pointer, cols int)
TEXT ·floatF32x1AVX2(SB), NOSPLIT, $0-40
	FLOATS(ROWS1, 1, LOADF32, 4)

// func floatF16x4AVX2(dst pointer, stride int, tile, panel pointer, cols int)
TEXT ·floatF16x4AVX2(SB), NOSPLIT, $0-40
	FLOATS(ROWS4, 4, LOADF16, 2)

// func floatF16x2AVX2(dst pointer, stride int, tile, panel pointer, cols int)
TEXT ·floatF16x2AVX2(SB), NOSPLIT, $0-40
	FLOATS(ROWS2, 2, LOADF16, 2)

// func floatF16x1AVX2(dst pointer, stride int, tile, panel pointer, cols int)
TEXT ·floatF16x1AVX2(SB), NOSPLIT, $0-40
	FLOATS(ROWS1, 1, LOADF16, 2)

// func floatBF16x4AVX2(dst pointer, stride int, tile, panel pointer, cols int)
TEXT ·floatBF16x4AVX2(SB), NOSPLIT, $0-40
	FLOATS(ROWS4, 4, LOADBF16, 2)

// func floatBF16x2AVX2(dst pointer, stride int, tile, panel pointer, cols int)
TEXT ·floatBF16x2AVX2(SB), NOSPLIT, $0-40
	FLOATS(ROWS2, 2, LOADBF16, 2)

// func floatBF16x1AVX2(dst pointer, stride int, tile, panel pointer, cols int)
TEXT ·floatBF16x1AVX2(SB), NOSPLIT, $0-40
	FLOATS(ROWS1, 1, LOADBF16, 2)
