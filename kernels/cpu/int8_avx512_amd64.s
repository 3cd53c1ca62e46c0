#include "textflag.h"

// Matrix kernels for quantized tiles: one tile of 16 rows against a panel of
// 12, 8, 4, 2 or 1 rows of activations. The layouts are described in format.go
// and panel.go. For each block of 32 along K, lane r of a register does
//
//	dot  = bias or 0                             (int32)
//	dot += quant * activation                    (int32, 8 times 4 products)
//	sum  = fma(dot, scale*activation scale, sum) (float32)
//	sum  = fma(minimum, activation sum, sum)     (affine formats)
//
// in this order for every height, so a row's result does not depend on it.
//
// DI dst    DX bytes between rows of dst   SI quants    AX scales    R9 minimums
// BX panel  R8 panel, at the group of 4 in work         CX blocks
// I (Z0-Z11) dots, F (Z12-Z23) sums of row m of a panel of height H.

// ROWSn(op, H) does op for n rows.
#define ROWS1(op, H) op(H, 0, Z0, Z12)
#define ROWS2(op, H) ROWS1(op, H); op(H, 1, Z1, Z13)
#define ROWS4(op, H) ROWS2(op, H); op(H, 2, Z2, Z14); op(H, 3, Z3, Z15)
#define ROWS8(op, H) ROWS4(op, H); op(H, 4, Z4, Z16); op(H, 5, Z5, Z17); op(H, 6, Z6, Z18); op(H, 7, Z7, Z19)
#define ROWS12(op, H) ROWS8(op, H); op(H, 8, Z8, Z20); op(H, 9, Z9, Z21); op(H, 10, Z10, Z22); op(H, 11, Z11, Z23)

#define ZERO(H, m, I, F) VPXORQ F, F, F
#define DOT0(H, m, I, F) VPXORQ I, I, I
#define BIAS(H, m, I, F) VPBROADCASTD (40*H+4*m)(BX), I
#define BIASLO(H, m, I, F) VPBROADCASTD (44*H+4*m)(BX), I
#define BIASHI(H, m, I, F) VPBROADCASTD (48*H+4*m)(BX), I
#define DOT(H, m, I, F) VPDPBUSD.BCST (32*m)(R8), Z24, I
#define SCALE(H, m, I, F) VCVTDQ2PS I, I; VMULPS.BCST (32*H+4*m)(BX), Z26, Z27; VFMADD231PS Z27, I, F
#define MINIMUM(H, m, I, F) VFMADD231PS.BCST (36*H+4*m)(BX), Z28, F
#define STORE(H, m, I, F) VMOVUPS F, (DI); ADDQ DX, DI

// GROUP(g) adds the products of elements 4g to 4g+3.
#define GROUP(ROWS, H, g) VMOVDQU64 (64*g)(SI), Z24; ROWS(DOT, H); ADDQ $4, R8
#define GROUPS03(ROWS, H) GROUP(ROWS, H, 0); GROUP(ROWS, H, 1); GROUP(ROWS, H, 2); GROUP(ROWS, H, 3)
#define GROUPS47(ROWS, H) GROUP(ROWS, H, 4); GROUP(ROWS, H, 5); GROUP(ROWS, H, 6); GROUP(ROWS, H, 7)

#define ARGS \
	MOVQ dst+0(FP), DI     \
	MOVQ stride+8(FP), DX  \
	MOVQ quants+16(FP), SI \
	MOVQ scales+24(FP), AX \
	MOVQ mins+32(FP), R9   \
	MOVQ panel+40(FP), BX  \
	MOVQ blocks+48(FP), CX

#define SYMMETRIC(ROWS, H) \
	ARGS                \
	ROWS(ZERO, H)       \
loop:                       \
	MOVQ    BX, R8      \
	ROWS(BIAS, H)       \
	GROUPS03(ROWS, H)   \
	GROUPS47(ROWS, H)   \
	VMOVUPS (AX), Z26   \
	ROWS(SCALE, H)      \
	ADDQ    $512, SI    \
	ADDQ    $64, AX     \
	ADDQ    $(52*H), BX \
	DECQ    CX          \
	JNZ     loop        \
	ROWS(STORE, H)      \
	VZEROUPPER          \
	RET

#define AFFINE(ROWS, H) \
	ARGS                \
	ROWS(ZERO, H)       \
loop:                       \
	MOVQ    BX, R8      \
	ROWS(DOT0, H)       \
	GROUPS03(ROWS, H)   \
	GROUPS47(ROWS, H)   \
	VMOVUPS (AX), Z26   \
	VMOVUPS (R9), Z28   \
	ROWS(SCALE, H)      \
	ROWS(MINIMUM, H)    \
	ADDQ    $512, SI    \
	ADDQ    $64, AX     \
	ADDQ    $64, R9     \
	ADDQ    $(52*H), BX \
	DECQ    CX          \
	JNZ     loop        \
	ROWS(STORE, H)      \
	VZEROUPPER          \
	RET

#define HALFBLOCKS(ROWS, H) \
	ARGS                \
	ROWS(ZERO, H)       \
loop:                       \
	MOVQ    BX, R8      \
	ROWS(BIASLO, H)     \
	GROUPS03(ROWS, H)   \
	VMOVUPS (AX), Z26   \
	ROWS(SCALE, H)      \
	ROWS(BIASHI, H)     \
	GROUPS47(ROWS, H)   \
	VMOVUPS 64(AX), Z26 \
	ROWS(SCALE, H)      \
	ADDQ    $512, SI    \
	ADDQ    $128, AX    \
	ADDQ    $(52*H), BX \
	DECQ    CX          \
	JNZ     loop        \
	ROWS(STORE, H)      \
	VZEROUPPER          \
	RET

// func symmetric12AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)
TEXT ·symmetric12AVX512(SB), NOSPLIT, $0-56
	SYMMETRIC(ROWS12, 12)

// func symmetric8AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)
TEXT ·symmetric8AVX512(SB), NOSPLIT, $0-56
	SYMMETRIC(ROWS8, 8)

// func symmetric4AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)
TEXT ·symmetric4AVX512(SB), NOSPLIT, $0-56
	SYMMETRIC(ROWS4, 4)

// func symmetric2AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)
TEXT ·symmetric2AVX512(SB), NOSPLIT, $0-56
	SYMMETRIC(ROWS2, 2)

// func symmetric1AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)
TEXT ·symmetric1AVX512(SB), NOSPLIT, $0-56
	SYMMETRIC(ROWS1, 1)

// func affine12AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)
TEXT ·affine12AVX512(SB), NOSPLIT, $0-56
	AFFINE(ROWS12, 12)

// func affine8AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)
TEXT ·affine8AVX512(SB), NOSPLIT, $0-56
	AFFINE(ROWS8, 8)

// func affine4AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)
TEXT ·affine4AVX512(SB), NOSPLIT, $0-56
	AFFINE(ROWS4, 4)

// func affine2AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)
TEXT ·affine2AVX512(SB), NOSPLIT, $0-56
	AFFINE(ROWS2, 2)

// func affine1AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)
TEXT ·affine1AVX512(SB), NOSPLIT, $0-56
	AFFINE(ROWS1, 1)

// func halfBlocks12AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)
TEXT ·halfBlocks12AVX512(SB), NOSPLIT, $0-56
	HALFBLOCKS(ROWS12, 12)

// func halfBlocks8AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)
TEXT ·halfBlocks8AVX512(SB), NOSPLIT, $0-56
	HALFBLOCKS(ROWS8, 8)

// func halfBlocks4AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)
TEXT ·halfBlocks4AVX512(SB), NOSPLIT, $0-56
	HALFBLOCKS(ROWS4, 4)

// func halfBlocks2AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)
TEXT ·halfBlocks2AVX512(SB), NOSPLIT, $0-56
	HALFBLOCKS(ROWS2, 2)

// func halfBlocks1AVX512(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)
TEXT ·halfBlocks1AVX512(SB), NOSPLIT, $0-56
	HALFBLOCKS(ROWS1, 1)
