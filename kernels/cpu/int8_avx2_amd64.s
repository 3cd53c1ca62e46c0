#include "textflag.h"

// Matrix kernels for quantized tiles with AVX2: int8_avx512_amd64.s in two
// halves of eight rows, for panels of 4, 2 or 1. Dots are the same integers and
// sums are made by the same operations, so results equal those of AVX-512.
//
// VPMADDUBSW adds two products of unsigned and signed bytes to 16 bits with
// saturation. Quants of affine formats are below 32: no sum exceeds 2*31*127.
// Symmetric quants are signed: their magnitude, at most 128, is multiplied with
// the activation under their sign, at most 2*128*127 < 2^15.
//
// DI dst    DX bytes between rows of dst   SI quants    AX scales    R9 minimums
// BX panel  R8 panel, at the group of 4 in work         CX blocks    R10 halves
// I (Y0-Y3) dots, F (Y4-Y7) sums of row m of a panel of height H.

#define ROWS1(op, H) op(H, 0, Y0, Y4)
#define ROWS2(op, H) ROWS1(op, H); op(H, 1, Y1, Y5)
#define ROWS4(op, H) ROWS2(op, H); op(H, 2, Y2, Y6); op(H, 3, Y3, Y7)

#define ZERO(H, m, I, F) VPXOR F, F, F
#define DOT0(H, m, I, F) VPXOR I, I, I
#define DOTU(H, m, I, F) \
	VPBROADCASTD (32*m)(R8), Y9 \
	VPMADDUBSW Y9, Y8, Y9       \
	VPMADDWD Y15, Y9, Y9        \
	VPADDD Y9, I, I
#define DOTS(H, m, I, F) \
	VPBROADCASTD (32*m)(R8), Y9 \
	VPSIGNB Y8, Y9, Y9          \
	VPMADDUBSW Y9, Y10, Y9      \
	VPMADDWD Y15, Y9, Y9        \
	VPADDD Y9, I, I
#define SCALE(H, m, I, F) \
	VCVTDQ2PS I, I                     \
	VBROADCASTSS (32*H+4*m)(BX), Y9    \
	VMULPS Y9, Y11, Y9                 \
	VFMADD231PS Y9, I, F
#define MINIMUM(H, m, I, F) \
	VBROADCASTSS (36*H+4*m)(BX), Y9    \
	VFMADD231PS Y9, Y12, F
#define STORE(H, m, I, F) VMOVUPS F, (R8); ADDQ DX, R8

#define GROUPU(ROWS, H, g) VMOVDQU (64*g)(SI), Y8; ROWS(DOTU, H); ADDQ $4, R8
#define GROUPS(ROWS, H, g) \
	VPXOR (64*g)(SI), Y14, Y8 \
	VPABSB Y8, Y10            \
	ROWS(DOTS, H)             \
	ADDQ $4, R8

#define ARGS \
	MOVQ dst+0(FP), DI     \
	MOVQ stride+8(FP), DX  \
	MOVQ $2, R10           \
	MOVL $0x00010001, AX   \
	VMOVD AX, X15          \
	VPBROADCASTD X15, Y15  \
	MOVL $0x80808080, AX   \
	VMOVD AX, X14          \
	VPBROADCASTD X14, Y14

// HALF points at the half whose turn it is: 32 bytes into every group, 8 floats
// into scales and minimums.
#define HALF \
	MOVQ quants+16(FP), SI \
	MOVQ scales+24(FP), AX \
	MOVQ mins+32(FP), R9   \
	MOVQ panel+40(FP), BX  \
	MOVQ blocks+48(FP), CX \
	CMPQ R10, $2           \
	JEQ  first             \
	ADDQ $32, SI           \
	ADDQ $32, AX           \
	ADDQ $32, R9           \
first:

#define NEXTHALF(ROWS, H) \
	MOVQ DI, R8    \
	ROWS(STORE, H) \
	ADDQ $32, DI   \
	DECQ R10       \
	JNZ  half      \
	VZEROUPPER     \
	RET

#define SYMMETRIC(ROWS, H) \
	ARGS                \
half:                       \
	HALF                \
	ROWS(ZERO, H)       \
loop:                       \
	MOVQ BX, R8         \
	ROWS(DOT0, H)       \
	GROUPS(ROWS, H, 0)  \
	GROUPS(ROWS, H, 1)  \
	GROUPS(ROWS, H, 2)  \
	GROUPS(ROWS, H, 3)  \
	GROUPS(ROWS, H, 4)  \
	GROUPS(ROWS, H, 5)  \
	GROUPS(ROWS, H, 6)  \
	GROUPS(ROWS, H, 7)  \
	VMOVUPS (AX), Y11   \
	ROWS(SCALE, H)      \
	ADDQ $512, SI       \
	ADDQ $64, AX        \
	ADDQ $(52*H), BX    \
	DECQ CX             \
	JNZ  loop           \
	NEXTHALF(ROWS, H)

#define HALFBLOCKS(ROWS, H) \
	ARGS                \
half:                       \
	HALF                \
	ROWS(ZERO, H)       \
loop:                       \
	MOVQ BX, R8         \
	ROWS(DOT0, H)       \
	GROUPS(ROWS, H, 0)  \
	GROUPS(ROWS, H, 1)  \
	GROUPS(ROWS, H, 2)  \
	GROUPS(ROWS, H, 3)  \
	VMOVUPS (AX), Y11   \
	ROWS(SCALE, H)      \
	ROWS(DOT0, H)       \
	GROUPS(ROWS, H, 4)  \
	GROUPS(ROWS, H, 5)  \
	GROUPS(ROWS, H, 6)  \
	GROUPS(ROWS, H, 7)  \
	VMOVUPS 64(AX), Y11 \
	ROWS(SCALE, H)      \
	ADDQ $512, SI       \
	ADDQ $128, AX       \
	ADDQ $(52*H), BX    \
	DECQ CX             \
	JNZ  loop           \
	NEXTHALF(ROWS, H)

#define AFFINE(ROWS, H) \
	ARGS                \
half:                       \
	HALF                \
	ROWS(ZERO, H)       \
loop:                       \
	MOVQ BX, R8         \
	ROWS(DOT0, H)       \
	GROUPU(ROWS, H, 0)  \
	GROUPU(ROWS, H, 1)  \
	GROUPU(ROWS, H, 2)  \
	GROUPU(ROWS, H, 3)  \
	GROUPU(ROWS, H, 4)  \
	GROUPU(ROWS, H, 5)  \
	GROUPU(ROWS, H, 6)  \
	GROUPU(ROWS, H, 7)  \
	VMOVUPS (AX), Y11   \
	VMOVUPS (R9), Y12   \
	ROWS(SCALE, H)      \
	ROWS(MINIMUM, H)    \
	ADDQ $512, SI       \
	ADDQ $64, AX        \
	ADDQ $64, R9        \
	ADDQ $(52*H), BX    \
	DECQ CX             \
	JNZ  loop           \
	NEXTHALF(ROWS, H)

// func symmetric4AVX2(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)
TEXT ·symmetric4AVX2(SB), NOSPLIT, $0-56
	SYMMETRIC(ROWS4, 4)

// func symmetric2AVX2(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)
TEXT ·symmetric2AVX2(SB), NOSPLIT, $0-56
	SYMMETRIC(ROWS2, 2)

// func symmetric1AVX2(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)
TEXT ·symmetric1AVX2(SB), NOSPLIT, $0-56
	SYMMETRIC(ROWS1, 1)

// func affine4AVX2(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)
TEXT ·affine4AVX2(SB), NOSPLIT, $0-56
	AFFINE(ROWS4, 4)

// func affine2AVX2(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)
TEXT ·affine2AVX2(SB), NOSPLIT, $0-56
	AFFINE(ROWS2, 2)

// func affine1AVX2(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)
TEXT ·affine1AVX2(SB), NOSPLIT, $0-56
	AFFINE(ROWS1, 1)

// func halfBlocks4AVX2(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)
TEXT ·halfBlocks4AVX2(SB), NOSPLIT, $0-56
	HALFBLOCKS(ROWS4, 4)

// func halfBlocks2AVX2(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)
TEXT ·halfBlocks2AVX2(SB), NOSPLIT, $0-56
	HALFBLOCKS(ROWS2, 2)

// func halfBlocks1AVX2(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)
TEXT ·halfBlocks1AVX2(SB), NOSPLIT, $0-56
	HALFBLOCKS(ROWS1, 1)
