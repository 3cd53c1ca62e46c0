#include "textflag.h"

// fused_avx512_amd64.s for the formats of five and six bits and the K-quants.
//
// DI dst of the tile   R12 panel   R13 blocks   SI quants   AX, R9 scales
// BX panel at the block   R8 at the group   CX blocks left
// R10 bytes of a tile   R11 tiles left   R14 what to prefetch
// I (Z0-Z11) dots, F (Z12-Z23) sums of row m of a panel of height H.

#define ROWS1(op, H) op(H, 0, Z0, Z12)
#define ROWS2(op, H) ROWS1(op, H); op(H, 1, Z1, Z13)
#define ROWS4(op, H) ROWS2(op, H); op(H, 2, Z2, Z14); op(H, 3, Z3, Z15)
#define ROWS8(op, H) ROWS4(op, H); op(H, 4, Z4, Z16); op(H, 5, Z5, Z17); op(H, 6, Z6, Z18); op(H, 7, Z7, Z19)
#define ROWS12(op, H) ROWS8(op, H); op(H, 8, Z8, Z20); op(H, 9, Z9, Z21); op(H, 10, Z10, Z22); op(H, 11, Z11, Z23)

DATA sixteens<>+0(SB)/8, $0x1010101010101010
DATA sixteens<>+8(SB)/8, $0x1010101010101010
DATA sixteens<>+16(SB)/8, $0x1010101010101010
DATA sixteens<>+24(SB)/8, $0x1010101010101010
DATA sixteens<>+32(SB)/8, $0x1010101010101010
DATA sixteens<>+40(SB)/8, $0x1010101010101010
DATA sixteens<>+48(SB)/8, $0x1010101010101010
DATA sixteens<>+56(SB)/8, $0x1010101010101010
GLOBL sixteens<>(SB), RODATA|NOPTR, $64

DATA sign<>+0(SB)/4, $0x80000000
GLOBL sign<>(SB), RODATA|NOPTR, $4

#define ZERO(H, m, I, F) VPXORQ F, F, F
#define DOT0(H, m, I, F) VPXORQ I, I, I
// -128 times the sum, divided by 8: takes 16 off the quants of Q5_0.
#define BIAS16(H, m, I, F) VPBROADCASTD (40*H+4*m)(BX), I; VPSRAD $3, I, I
#define DOT(H, m, I, F) VPDPBUSD.BCST (32*m)(R8), Z24, I
#define DOTHI(H, m, I, F) VPDPBUSD.BCST (32*m+16)(R8), Z25, I
#define SCALE(H, m, I, F) VCVTDQ2PS I, I; VMULPS.BCST (32*H+4*m)(BX), Z26, Z27; VFMADD231PS Z27, I, F
#define MINIMUM(H, m, I, F) VFMADD231PS.BCST (36*H+4*m)(BX), Z28, F
#define STORE(H, m, I, F) VMOVUPS F, (R8); ADDQ DX, R8

#define LOWHIGH(c) \
	VMOVDQU64 (64*c)(SI), Z24 \
	VPSRLW $4, Z24, Z25       \
	VPANDQ Z31, Z24, Z24      \
	VPANDQ Z31, Z25, Z25

// FOUR and FIVE add elements 4c to 4c+3 and 16+4c to 16+4c+3.
#define FOUR(ROWS, H, c) LOWHIGH(c); ROWS(DOT, H); ROWS(DOTHI, H); ADDQ $4, R8
#define FIVE(ROWS, H, c) \
	LOWHIGH(c)                          \
	KMOVQ (256+8*c)(SI), K1             \
	KMOVQ (288+8*c)(SI), K2             \
	VPADDB sixteens<>(SB), Z24, K1, Z24 \
	VPADDB sixteens<>(SB), Z25, K2, Z25 \
	ROWS(DOT, H)                        \
	ROWS(DOTHI, H)                      \
	ADDQ $4, R8

#define AHEAD 4096

#define READAHEAD \
	PREFETCHT0 (AHEAD)(R14)     \
	PREFETCHT0 (AHEAD+64)(R14)  \
	PREFETCHT0 (AHEAD+128)(R14) \
	PREFETCHT0 (AHEAD+192)(R14) \
	PREFETCHT0 (AHEAD+256)(R14) \
	PREFETCHT0 (AHEAD+320)(R14)

#define ARGS \
	MOVQ dst+0(FP), DI         \
	MOVQ tile+16(FP), R14      \
	MOVQ tileBytes+24(FP), R10 \
	MOVQ tiles+32(FP), R11     \
	MOVQ panel+40(FP), R12     \
	MOVQ blocks+48(FP), R13    \
	MOVQ $15, AX               \
	VPBROADCASTB AX, Z31

// START points AX behind BITS (4 or 5) of quants.
#define START4 MOVQ R14, SI; MOVQ R13, AX; SHLQ $8, AX; ADDQ SI, AX; MOVQ R12, BX; MOVQ R13, CX
#define START5 MOVQ R14, SI; IMUL3Q $320, R13, AX; ADDQ SI, AX; MOVQ R12, BX; MOVQ R13, CX

#define NEXTTILE(ROWS, H) \
	MOVQ stride+8(FP), DX \
	MOVQ DI, R8           \
	ROWS(STORE, H)        \
	ADDQ $64, DI          \
	MOVQ tile+16(FP), R14 \
	ADDQ R10, R14         \
	MOVQ R14, tile+16(FP) \
	DECQ R11              \
	JNZ  tile             \
	VZEROUPPER            \
	RET

#define Q5(ROWS, H) \
	ARGS                \
tile:                       \
	START5              \
	ROWS(ZERO, H)       \
block:                      \
	READAHEAD           \
	MOVQ BX, R8         \
	ROWS(BIAS16, H)     \
	FIVE(ROWS, H, 0)    \
	FIVE(ROWS, H, 1)    \
	FIVE(ROWS, H, 2)    \
	FIVE(ROWS, H, 3)    \
	VCVTPH2PS (AX), Z26 \
	ROWS(SCALE, H)      \
	ADDQ $352, R14      \
	ADDQ $320, SI       \
	ADDQ $32, AX        \
	ADDQ $(52*H), BX    \
	DECQ CX             \
	JNZ  block          \
	NEXTTILE(ROWS, H)

#define Q5M(ROWS, H) \
	ARGS                \
tile:                       \
	START5              \
	MOVQ R13, R9        \
	SHLQ $5, R9         \
	ADDQ AX, R9         \
	ROWS(ZERO, H)       \
block:                      \
	READAHEAD           \
	MOVQ BX, R8         \
	ROWS(DOT0, H)       \
	FIVE(ROWS, H, 0)    \
	FIVE(ROWS, H, 1)    \
	FIVE(ROWS, H, 2)    \
	FIVE(ROWS, H, 3)    \
	VCVTPH2PS (AX), Z26 \
	VCVTPH2PS (R9), Z28 \
	ROWS(SCALE, H)      \
	ROWS(MINIMUM, H)    \
	ADDQ $384, R14      \
	ADDQ $320, SI       \
	ADDQ $32, AX        \
	ADDQ $32, R9        \
	ADDQ $(52*H), BX    \
	DECQ CX             \
	JNZ  block          \
	NEXTTILE(ROWS, H)

// KQUANTS: R9 is at the super block's d, R15 bytes before its dmin; AX is at the
// block's scales, DX bytes before its minimums. Z29 is d, Z30 -dmin.
#define KQUANTS(START, QUANTS, SIZE, ROWS, H) \
	ARGS                          \
tile:                                 \
	START                         \
	MOVQ AX, R9                   \
	MOVQ R13, R15                 \
	SHLQ $2, R15                  \
	LEAQ (AX)(R15*2), AX          \
	MOVQ R13, DX                  \
	SHLQ $4, DX                   \
	ROWS(ZERO, H)                 \
block:                                \
	TESTQ $7, CX                  \
	JNZ  within                   \
	VCVTPH2PS (R9), Z29           \
	VCVTPH2PS (R9)(R15*1), Z30    \
	VPXORD.BCST sign<>(SB), Z30, Z30 \
	ADDQ $32, R9                  \
within:                               \
	READAHEAD                     \
	MOVQ BX, R8                   \
	ROWS(DOT0, H)                 \
	QUANTS(ROWS, H, 0)            \
	QUANTS(ROWS, H, 1)            \
	QUANTS(ROWS, H, 2)            \
	QUANTS(ROWS, H, 3)            \
	VPMOVZXBD (AX), Z26           \
	VPMOVZXBD (AX)(DX*1), Z28     \
	VCVTDQ2PS Z26, Z26            \
	VCVTDQ2PS Z28, Z28            \
	VMULPS Z29, Z26, Z26          \
	VMULPS Z30, Z28, Z28          \
	ROWS(SCALE, H)                \
	ROWS(MINIMUM, H)              \
	ADDQ $(SIZE+40), R14          \
	ADDQ $SIZE, SI                \
	ADDQ $16, AX                  \
	ADDQ $(52*H), BX              \
	DECQ CX                       \
	JNZ  block                    \
	NEXTTILE(ROWS, H)

#define Q4K(ROWS, H) KQUANTS(START4, FOUR, 256, ROWS, H)
#define Q5K(ROWS, H) KQUANTS(START5, FIVE, 320, ROWS, H)

// Q6K has a sum for each half of a block: I (Z0-Z7) and J (Z8-Z15), F (Z16-Z23).
// R9 is at the super block's d, AX at the block's scales.
#define HALVES1(op, H) op(H, 0, Z0, Z8, Z16)
#define HALVES2(op, H) HALVES1(op, H); op(H, 1, Z1, Z9, Z17)
#define HALVES4(op, H) HALVES2(op, H); op(H, 2, Z2, Z10, Z18); op(H, 3, Z3, Z11, Z19)
#define HALVES8(op, H) HALVES4(op, H); op(H, 4, Z4, Z12, Z20); op(H, 5, Z5, Z13, Z21); op(H, 6, Z6, Z14, Z22); op(H, 7, Z7, Z15, Z23)

#define ZERO6(H, m, I, J, F) VPXORQ F, F, F
// -128 times the sums of the halves, divided by 4: takes 32 off the quants.
#define BIAS32(H, m, I, J, F) \
	VPBROADCASTD (44*H+4*m)(BX), I \
	VPBROADCASTD (48*H+4*m)(BX), J \
	VPSRAD $2, I, I                \
	VPSRAD $2, J, J
#define DOT6(H, m, I, J, F) \
	VPDPBUSD.BCST (32*m)(R8), Z24, I    \
	VPDPBUSD.BCST (32*m+16)(R8), Z25, J
#define SCALEI(H, m, I, J, F) VCVTDQ2PS I, I; VMULPS.BCST (32*H+4*m)(BX), Z26, Z27; VFMADD231PS Z27, I, F
#define SCALEJ(H, m, I, J, F) VCVTDQ2PS J, J; VMULPS.BCST (32*H+4*m)(BX), Z26, Z27; VFMADD231PS Z27, J, F
#define STORE6(H, m, I, J, F) VMOVUPS F, (R8); ADDQ DX, R8

// SIX adds elements of both halves; SHIFT takes their upper bits to bits 4 and 5.
#define LEFT4(Z) VPSLLW $4, Z, Z27
#define LEFT2(Z) VPSLLW $2, Z, Z27
#define STAY(Z) VMOVDQA64 Z, Z27
#define RIGHT2(Z) VPSRLW $2, Z, Z27
#define SIX(ROWS, H, c, SHIFT) \
	LOWHIGH(c)           \
	SHIFT(Z28)           \
	VPANDQ Z30, Z27, Z27 \
	VPORQ Z27, Z24, Z24  \
	SHIFT(Z29)           \
	VPANDQ Z30, Z27, Z27 \
	VPORQ Z27, Z25, Z25  \
	ROWS(DOT6, H)        \
	ADDQ $4, R8

#define SCALE6(off) \
	VCVTPH2PS (R9), Z26    \
	VPMOVSXBD off(AX), Z27 \
	VCVTDQ2PS Z27, Z27     \
	VMULPS Z27, Z26, Z26

#define Q6K(ROWS, H) \
	ARGS                     \
	MOVQ $0x30, AX           \
	VPBROADCASTB AX, Z30     \
tile:                            \
	MOVQ R14, SI             \
	IMUL3Q $384, R13, R9     \
	ADDQ SI, R9              \
	MOVQ R13, AX             \
	SHLQ $2, AX              \
	ADDQ R9, AX              \
	MOVQ R12, BX             \
	MOVQ R13, CX             \
	ROWS(ZERO6, H)           \
block:                           \
	READAHEAD                \
	PREFETCHT0 (AHEAD+384)(R14) \
	MOVQ BX, R8              \
	ROWS(BIAS32, H)          \
	VMOVDQU64 256(SI), Z28   \
	VMOVDQU64 320(SI), Z29   \
	SIX(ROWS, H, 0, LEFT4)   \
	SIX(ROWS, H, 1, LEFT2)   \
	SIX(ROWS, H, 2, STAY)    \
	SIX(ROWS, H, 3, RIGHT2)  \
	SCALE6(0)                \
	ROWS(SCALEI, H)          \
	SCALE6(16)               \
	ROWS(SCALEJ, H)          \
	ADDQ $420, R14           \
	ADDQ $384, SI            \
	ADDQ $32, AX             \
	ADDQ $(52*H), BX         \
	DECQ CX                  \
	JZ   stored              \
	TESTQ $7, CX             \
	JNZ  block               \
	ADDQ $32, R9             \
	JMP  block               \
stored:                          \
	MOVQ stride+8(FP), DX    \
	MOVQ DI, R8              \
	ROWS(STORE6, H)          \
	ADDQ $64, DI             \
	MOVQ tile+16(FP), R14    \
	ADDQ R10, R14            \
	MOVQ R14, tile+16(FP)    \
	DECQ R11                 \
	JNZ  tile                \
	VZEROUPPER               \
	RET

// func fusedQ5x12AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ5x12AVX512(SB), NOSPLIT, $0-56
	Q5(ROWS12, 12)

// func fusedQ5x8AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ5x8AVX512(SB), NOSPLIT, $0-56
	Q5(ROWS8, 8)

// func fusedQ5x4AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ5x4AVX512(SB), NOSPLIT, $0-56
	Q5(ROWS4, 4)

// func fusedQ5x2AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ5x2AVX512(SB), NOSPLIT, $0-56
	Q5(ROWS2, 2)

// func fusedQ5x1AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ5x1AVX512(SB), NOSPLIT, $0-56
	Q5(ROWS1, 1)

// func fusedQ5Mx12AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ5Mx12AVX512(SB), NOSPLIT, $0-56
	Q5M(ROWS12, 12)

// func fusedQ5Mx8AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ5Mx8AVX512(SB), NOSPLIT, $0-56
	Q5M(ROWS8, 8)

// func fusedQ5Mx4AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ5Mx4AVX512(SB), NOSPLIT, $0-56
	Q5M(ROWS4, 4)

// func fusedQ5Mx2AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ5Mx2AVX512(SB), NOSPLIT, $0-56
	Q5M(ROWS2, 2)

// func fusedQ5Mx1AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ5Mx1AVX512(SB), NOSPLIT, $0-56
	Q5M(ROWS1, 1)

// func fusedQ4Kx12AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ4Kx12AVX512(SB), NOSPLIT, $0-56
	Q4K(ROWS12, 12)

// func fusedQ4Kx8AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ4Kx8AVX512(SB), NOSPLIT, $0-56
	Q4K(ROWS8, 8)

// func fusedQ4Kx4AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ4Kx4AVX512(SB), NOSPLIT, $0-56
	Q4K(ROWS4, 4)

// func fusedQ4Kx2AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ4Kx2AVX512(SB), NOSPLIT, $0-56
	Q4K(ROWS2, 2)

// func fusedQ4Kx1AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ4Kx1AVX512(SB), NOSPLIT, $0-56
	Q4K(ROWS1, 1)

// func fusedQ5Kx12AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ5Kx12AVX512(SB), NOSPLIT, $0-56
	Q5K(ROWS12, 12)

// func fusedQ5Kx8AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ5Kx8AVX512(SB), NOSPLIT, $0-56
	Q5K(ROWS8, 8)

// func fusedQ5Kx4AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ5Kx4AVX512(SB), NOSPLIT, $0-56
	Q5K(ROWS4, 4)

// func fusedQ5Kx2AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ5Kx2AVX512(SB), NOSPLIT, $0-56
	Q5K(ROWS2, 2)

// func fusedQ5Kx1AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ5Kx1AVX512(SB), NOSPLIT, $0-56
	Q5K(ROWS1, 1)

// func fusedQ6Kx8AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ6Kx8AVX512(SB), NOSPLIT, $0-56
	Q6K(HALVES8, 8)

// func fusedQ6Kx4AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ6Kx4AVX512(SB), NOSPLIT, $0-56
	Q6K(HALVES4, 4)

// func fusedQ6Kx2AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ6Kx2AVX512(SB), NOSPLIT, $0-56
	Q6K(HALVES2, 2)

// func fusedQ6Kx1AVX512(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)
TEXT ·fusedQ6Kx1AVX512(SB), NOSPLIT, $0-56
	Q6K(HALVES1, 1)
