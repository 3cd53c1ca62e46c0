#include "textflag.h"

// Matrix kernels that unpack on the way, with AVX2: fused_avx512_amd64.s in two
// halves of eight rows, for panels of 4, 2 or 1, with the same results. The
// second half of a tile finds it in the first-level cache.
//
// Dots of nibbles are gathered in 16 bits: eight sums of two products of at most
// 15*127 stay below 2^15.
//
// DI dst of the half   DX bytes between rows of dst   R12 halves left   R13 blocks
// SI quants   AX scales   R9 minimums   BX panel at the block   R8 at the group
// R11 tiles left   R14 what to prefetch   CX blocks left
// I (Y0-Y3) dots, F (Y4-Y7) sums of row m of a panel of height H.

#define ROWS1(op, H) op(H, 0, Y0, Y4)
#define ROWS2(op, H) ROWS1(op, H); op(H, 1, Y1, Y5)
#define ROWS4(op, H) ROWS2(op, H); op(H, 2, Y2, Y6); op(H, 3, Y3, Y7)

#define ZERO(H, m, I, F) VPXOR F, F, F
#define DOT0(H, m, I, F) VPXOR I, I, I
#define DOTLO(H, m, I, F) VPBROADCASTD (32*m)(R8), Y9; VPMADDUBSW Y9, Y8, Y9; VPADDW Y9, I, I
#define DOTHI(H, m, I, F) VPBROADCASTD (32*m+16)(R8), Y9; VPMADDUBSW Y9, Y10, Y9; VPADDW Y9, I, I
#define WIDEN(H, m, I, F) VPMADDWD Y15, I, I
// -128 times the sum, divided by 16: takes 8 off the quants of Q4_0.
#define WIDEN8(H, m, I, F) \
	VPMADDWD Y15, I, I              \
	VPBROADCASTD (40*H+4*m)(BX), Y9 \
	VPSRAD $4, Y9, Y9               \
	VPADDD Y9, I, I
#define DOTS(H, m, I, F) \
	VPBROADCASTD (32*m)(R8), Y9 \
	VPSIGNB Y8, Y9, Y9          \
	VPMADDUBSW Y9, Y10, Y9      \
	VPMADDWD Y15, Y9, Y9        \
	VPADDD Y9, I, I
#define SCALE(H, m, I, F) \
	VCVTDQ2PS I, I                  \
	VBROADCASTSS (32*H+4*m)(BX), Y9 \
	VMULPS Y9, Y11, Y9              \
	VFMADD231PS Y9, I, F
#define MINIMUM(H, m, I, F) VBROADCASTSS (36*H+4*m)(BX), Y9; VFMADD231PS Y9, Y12, F
#define STORE(H, m, I, F) VMOVUPS F, (R8); ADDQ DX, R8

#define NIBBLES(ROWS, H, c) \
	VMOVDQU (64*c)(SI), Y8 \
	VPSRLW $4, Y8, Y10     \
	VPAND Y13, Y8, Y8      \
	VPAND Y13, Y10, Y10    \
	ROWS(DOTLO, H)         \
	ROWS(DOTHI, H)         \
	ADDQ $4, R8

#define BYTES(ROWS, H, g) \
	VPXOR (64*g)(SI), Y14, Y8 \
	VPABSB Y8, Y10            \
	ROWS(DOTS, H)             \
	ADDQ $4, R8

#define AHEAD 4096

#define ARGS \
	MOVQ dst+0(FP), DI     \
	MOVQ stride+8(FP), DX  \
	MOVQ tiles+32(FP), R11 \
	MOVQ blocks+48(FP), R13 \
	MOVL $0x00010001, AX   \
	VMOVD AX, X15          \
	VPBROADCASTD X15, Y15  \
	MOVL $0x80808080, AX   \
	VMOVD AX, X14          \
	VPBROADCASTD X14, Y14  \
	MOVL $0x0f0f0f0f, AX   \
	VMOVD AX, X13          \
	VPBROADCASTD X13, Y13

// START begins a half; its quants lie R10 = 32*(2 - halves left) bytes into every
// group, its scales half as far into theirs.
#define START(SIZE) \
	MOVQ tile+16(FP), R14  \
	MOVQ panel+40(FP), BX  \
	MOVQ R13, CX           \
	MOVQ $2, R10           \
	SUBQ R12, R10          \
	SHLQ $4, R10           \
	IMUL3Q $SIZE, R13, AX  \
	ADDQ R14, AX           \
	ADDQ R10, AX           \
	LEAQ (R14)(R10*2), SI  \
	MOVQ R13, R9           \
	SHLQ $5, R9            \
	ADDQ AX, R9

#define NEXTHALF(ROWS, H) \
	MOVQ DI, R8               \
	ROWS(STORE, H)            \
	ADDQ $32, DI              \
	DECQ R12                  \
	JNZ  half                 \
	MOVQ tileBytes+24(FP), R10 \
	ADDQ R10, tile+16(FP)     \
	DECQ R11                  \
	JNZ  tile                 \
	VZEROUPPER                \
	RET

#define Q4M(ROWS, H) \
	ARGS                        \
tile:                               \
	MOVQ $2, R12                \
half:                               \
	START(256)                  \
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
	ROWS(WIDEN, H)              \
	VCVTPH2PS (AX), Y11         \
	VCVTPH2PS (R9), Y12         \
	ROWS(SCALE, H)              \
	ROWS(MINIMUM, H)            \
	ADDQ $320, R14              \
	ADDQ $256, SI               \
	ADDQ $32, AX                \
	ADDQ $32, R9                \
	ADDQ $(52*H), BX            \
	DECQ CX                     \
	JNZ  block                  \
	NEXTHALF(ROWS, H)

#define Q4(ROWS, H) \
	ARGS                        \
tile:                               \
	MOVQ $2, R12                \
half:                               \
	START(256)                  \
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
	ROWS(WIDEN8, H)             \
	VCVTPH2PS (AX), Y11         \
	ROWS(SCALE, H)              \
	ADDQ $288, R14              \
	ADDQ $256, SI               \
	ADDQ $32, AX                \
	ADDQ $(52*H), BX            \
	DECQ CX                     \
	JNZ  block                  \
	NEXTHALF(ROWS, H)

#define Q8(ROWS, H) \
	ARGS                        \
tile:                               \
	MOVQ $2, R12                \
half:                               \
	START(512)                  \
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
	ROWS(DOT0, H)               \
	BYTES(ROWS, H, 0)           \
	BYTES(ROWS, H, 1)           \
	BYTES(ROWS, H, 2)           \
	BYTES(ROWS, H, 3)           \
	BYTES(ROWS, H, 4)           \
	BYTES(ROWS, H, 5)           \
	BYTES(ROWS, H, 6)           \
	BYTES(ROWS, H, 7)           \
	VCVTPH2PS (AX), Y11         \
	ROWS(SCALE, H)              \
	ADDQ $544, R14              \
	ADDQ $512, SI               \
	ADDQ $32, AX                \
	ADDQ $(52*H), BX            \
	DECQ CX                     \
	JNZ  block                  \
	NEXTHALF(ROWS, H)

// func fusedQ4Mx4AVX2(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ4Mx4AVX2(SB), NOSPLIT, $0-56
	Q4M(ROWS4, 4)

// func fusedQ4Mx2AVX2(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ4Mx2AVX2(SB), NOSPLIT, $0-56
	Q4M(ROWS2, 2)

// func fusedQ4Mx1AVX2(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ4Mx1AVX2(SB), NOSPLIT, $0-56
	Q4M(ROWS1, 1)

// func fusedQ4x4AVX2(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ4x4AVX2(SB), NOSPLIT, $0-56
	Q4(ROWS4, 4)

// func fusedQ4x2AVX2(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ4x2AVX2(SB), NOSPLIT, $0-56
	Q4(ROWS2, 2)

// func fusedQ4x1AVX2(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ4x1AVX2(SB), NOSPLIT, $0-56
	Q4(ROWS1, 1)

// func fusedQ8x4AVX2(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ8x4AVX2(SB), NOSPLIT, $0-56
	Q8(ROWS4, 4)

// func fusedQ8x2AVX2(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ8x2AVX2(SB), NOSPLIT, $0-56
	Q8(ROWS2, 2)

// func fusedQ8x1AVX2(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ8x1AVX2(SB), NOSPLIT, $0-56
	Q8(ROWS1, 1)
