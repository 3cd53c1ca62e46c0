#include "textflag.h"

// Matrix kernels that unpack quants and scales on the way: several tiles against
// one panel. They serve few rows, where a tile is read from memory and used only
// once; the arithmetic is that of int8_avx512_amd64.s, operation by operation.
//
// DI dst of the tile   DX bytes between rows of dst   R12 panel   R13 blocks
// SI quants   AX scales   R9 minimums   BX panel at the block   R8 at the group
// R10 bytes of a tile   R11 tiles left   R14 what to prefetch
// I (Z0-Z11) dots, F (Z12-Z23) sums of row m of a panel of height H.

#define ROWS1(op, H) op(H, 0, Z0, Z12)
#define ROWS2(op, H) ROWS1(op, H); op(H, 1, Z1, Z13)
#define ROWS4(op, H) ROWS2(op, H); op(H, 2, Z2, Z14); op(H, 3, Z3, Z15)
#define ROWS8(op, H) ROWS4(op, H); op(H, 4, Z4, Z16); op(H, 5, Z5, Z17); op(H, 6, Z6, Z18); op(H, 7, Z7, Z19)
#define ROWS12(op, H) ROWS8(op, H); op(H, 8, Z8, Z20); op(H, 9, Z9, Z21); op(H, 10, Z10, Z22); op(H, 11, Z11, Z23)

#define ZERO(H, m, I, F) VPXORQ F, F, F
#define DOT0(H, m, I, F) VPXORQ I, I, I
#define BIAS(H, m, I, F) VPBROADCASTD (40*H+4*m)(BX), I
// -128 times the sum, divided by 16: takes 8 off the quants of Q4_0.
#define BIAS8(H, m, I, F) VPBROADCASTD (40*H+4*m)(BX), I; VPSRAD $4, I, I
#define DOT(H, m, I, F) VPDPBUSD.BCST (32*m)(R8), Z24, I
#define DOTHI(H, m, I, F) VPDPBUSD.BCST (32*m+16)(R8), Z25, I
#define SCALE(H, m, I, F) VCVTDQ2PS I, I; VMULPS.BCST (32*H+4*m)(BX), Z26, Z27; VFMADD231PS Z27, I, F
#define MINIMUM(H, m, I, F) VFMADD231PS.BCST (36*H+4*m)(BX), Z28, F
#define STORE(H, m, I, F) VMOVUPS F, (R8); ADDQ DX, R8

// NIBBLES(c) adds elements 4c to 4c+3 and 16+4c to 16+4c+3.
#define NIBBLES(ROWS, H, c) \
	VMOVDQU64 (64*c)(SI), Z24 \
	VPSRLW $4, Z24, Z25       \
	VPANDQ Z31, Z24, Z24      \
	VPANDQ Z31, Z25, Z25      \
	ROWS(DOT, H)              \
	ROWS(DOTHI, H)            \
	ADDQ $4, R8

#define BYTES(ROWS, H, g) VMOVDQU64 (64*g)(SI), Z24; ROWS(DOT, H); ADDQ $4, R8

// Memory is read ahead by AHEAD bytes: the hardware's own prefetchers stop at the
// end of a page, and a tile is a page or two.
#define AHEAD 4096

#define ARGS \
	MOVQ dst+0(FP), DI        \
	MOVQ stride+8(FP), DX     \
	MOVQ tile+16(FP), R14     \
	MOVQ tileBytes+24(FP), R10 \
	MOVQ tiles+32(FP), R11    \
	MOVQ panel+40(FP), R12    \
	MOVQ blocks+48(FP), R13   \
	MOVQ $15, AX              \
	VPBROADCASTB AX, Z31

#define NEXTTILE(ROWS, H) \
	MOVQ DI, R8        \
	ROWS(STORE, H)     \
	ADDQ $64, DI       \
	MOVQ tile+16(FP), R14 \
	ADDQ R10, R14      \
	MOVQ R14, tile+16(FP) \
	DECQ R11           \
	JNZ  tile          \
	VZEROUPPER         \
	RET

#define Q4M(ROWS, H) \
	ARGS                        \
tile:                               \
	MOVQ R14, SI                \
	MOVQ R13, AX                \
	SHLQ $8, AX                 \
	ADDQ SI, AX                 \
	MOVQ R13, R9                \
	SHLQ $5, R9                 \
	ADDQ AX, R9                 \
	MOVQ R12, BX                \
	MOVQ R13, CX                \
	ROWS(ZERO, H)               \
block:                              \
	PREFETCHT0 (AHEAD)(R14)     \
	PREFETCHT0 (AHEAD+64)(R14)  \
	PREFETCHT0 (AHEAD+128)(R14) \
	PREFETCHT0 (AHEAD+192)(R14) \
	PREFETCHT0 (AHEAD+256)(R14) \
	MOVQ BX, R8                 \
	ROWS(DOT0, H)               \
	NIBBLES(ROWS, H, 0)         \
	NIBBLES(ROWS, H, 1)         \
	NIBBLES(ROWS, H, 2)         \
	NIBBLES(ROWS, H, 3)         \
	VCVTPH2PS (AX), Z26         \
	VCVTPH2PS (R9), Z28         \
	ROWS(SCALE, H)              \
	ROWS(MINIMUM, H)            \
	ADDQ $320, R14              \
	ADDQ $256, SI               \
	ADDQ $32, AX                \
	ADDQ $32, R9                \
	ADDQ $(52*H), BX            \
	DECQ CX                     \
	JNZ  block                  \
	NEXTTILE(ROWS, H)

#define Q4(ROWS, H) \
	ARGS                        \
tile:                               \
	MOVQ R14, SI                \
	MOVQ R13, AX                \
	SHLQ $8, AX                 \
	ADDQ SI, AX                 \
	MOVQ R12, BX                \
	MOVQ R13, CX                \
	ROWS(ZERO, H)               \
block:                              \
	PREFETCHT0 (AHEAD)(R14)     \
	PREFETCHT0 (AHEAD+64)(R14)  \
	PREFETCHT0 (AHEAD+128)(R14) \
	PREFETCHT0 (AHEAD+192)(R14) \
	PREFETCHT0 (AHEAD+256)(R14) \
	MOVQ BX, R8                 \
	ROWS(BIAS8, H)              \
	NIBBLES(ROWS, H, 0)         \
	NIBBLES(ROWS, H, 1)         \
	NIBBLES(ROWS, H, 2)         \
	NIBBLES(ROWS, H, 3)         \
	VCVTPH2PS (AX), Z26         \
	ROWS(SCALE, H)              \
	ADDQ $288, R14              \
	ADDQ $256, SI               \
	ADDQ $32, AX                \
	ADDQ $(52*H), BX            \
	DECQ CX                     \
	JNZ  block                  \
	NEXTTILE(ROWS, H)

#define Q8(ROWS, H) \
	ARGS                        \
tile:                               \
	MOVQ R14, SI                \
	MOVQ R13, AX                \
	SHLQ $9, AX                 \
	ADDQ SI, AX                 \
	MOVQ R12, BX                \
	MOVQ R13, CX                \
	ROWS(ZERO, H)               \
block:                              \
	PREFETCHT0 (AHEAD)(R14)     \
	PREFETCHT0 (AHEAD+64)(R14)  \
	PREFETCHT0 (AHEAD+128)(R14) \
	PREFETCHT0 (AHEAD+192)(R14) \
	PREFETCHT0 (AHEAD+256)(R14) \
	PREFETCHT0 (AHEAD+320)(R14) \
	PREFETCHT0 (AHEAD+384)(R14) \
	PREFETCHT0 (AHEAD+448)(R14) \
	PREFETCHT0 (AHEAD+512)(R14) \
	MOVQ BX, R8                 \
	ROWS(BIAS, H)               \
	BYTES(ROWS, H, 0)           \
	BYTES(ROWS, H, 1)           \
	BYTES(ROWS, H, 2)           \
	BYTES(ROWS, H, 3)           \
	BYTES(ROWS, H, 4)           \
	BYTES(ROWS, H, 5)           \
	BYTES(ROWS, H, 6)           \
	BYTES(ROWS, H, 7)           \
	VCVTPH2PS (AX), Z26         \
	ROWS(SCALE, H)              \
	ADDQ $544, R14              \
	ADDQ $512, SI               \
	ADDQ $32, AX                \
	ADDQ $(52*H), BX            \
	DECQ CX                     \
	JNZ  block                  \
	NEXTTILE(ROWS, H)

// func fusedQ4Mx12AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ4Mx12AVX512(SB), NOSPLIT, $0-56
	Q4M(ROWS12, 12)

// func fusedQ4Mx8AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ4Mx8AVX512(SB), NOSPLIT, $0-56
	Q4M(ROWS8, 8)

// func fusedQ4Mx4AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ4Mx4AVX512(SB), NOSPLIT, $0-56
	Q4M(ROWS4, 4)

// func fusedQ4Mx2AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ4Mx2AVX512(SB), NOSPLIT, $0-56
	Q4M(ROWS2, 2)

// func fusedQ4Mx1AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ4Mx1AVX512(SB), NOSPLIT, $0-56
	Q4M(ROWS1, 1)

// func fusedQ4x12AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ4x12AVX512(SB), NOSPLIT, $0-56
	Q4(ROWS12, 12)

// func fusedQ4x8AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ4x8AVX512(SB), NOSPLIT, $0-56
	Q4(ROWS8, 8)

// func fusedQ4x4AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ4x4AVX512(SB), NOSPLIT, $0-56
	Q4(ROWS4, 4)

// func fusedQ4x2AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ4x2AVX512(SB), NOSPLIT, $0-56
	Q4(ROWS2, 2)

// func fusedQ4x1AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ4x1AVX512(SB), NOSPLIT, $0-56
	Q4(ROWS1, 1)

// func fusedQ8x12AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ8x12AVX512(SB), NOSPLIT, $0-56
	Q8(ROWS12, 12)

// func fusedQ8x8AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ8x8AVX512(SB), NOSPLIT, $0-56
	Q8(ROWS8, 8)

// func fusedQ8x4AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ8x4AVX512(SB), NOSPLIT, $0-56
	Q8(ROWS4, 4)

// func fusedQ8x2AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ8x2AVX512(SB), NOSPLIT, $0-56
	Q8(ROWS2, 2)

// func fusedQ8x1AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ8x1AVX512(SB), NOSPLIT, $0-56
	Q8(ROWS1, 1)
