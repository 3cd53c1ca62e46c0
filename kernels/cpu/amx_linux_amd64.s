#include "textflag.h"

// Matrix kernels on the tile unit (AMX). One TDPBSUD multiplies a panel of up to
// 16 rows with a weight tile of 16 rows over one block of 32 along K; its integers
// are exact, and the float32 sum over the blocks that follows is that of
// int8_avx512_amd64.s, operation by operation. The integers pass through memory,
// since tile registers have no other way out. First all blocks of a section are
// multiplied, then all are summed up: a tile instruction among vector code, even
// one load, halves the rate of 512-bit arithmetic for some time (measured: 16 rows
// of a block take 77 cycles if the two alternate, 68 like this).
//
// The assembler knows no tile instruction: they are spelled out below from
// Intel's Instruction Set Reference (VEX.128.0F38.W0, opcodes 49, 4B and 5E).
//
// R11 call (tileCall)   R10 32, bytes between rows of activations   R12 64
// BX activations, SI quants, DX integers: the block to multiply
// R8 activations, AX scales, R9 minimums, DI integers: the block to sum up
// CX blocks left
// Z0-Z15 sums of row m.

// LDTILECFG (R11) and TILERELEASE. A config lives within one call only: code
// that was interrupted elsewhere never has tiles to save.
#define LDTILECFG BYTE $0xc4; BYTE $0xc2; BYTE $0x78; BYTE $0x49; BYTE $0x03
#define TILERELEASE BYTE $0xc4; BYTE $0xe2; BYTE $0x78; BYTE $0x49; BYTE $0xc0
// TILEZERO T
#define TILEZERO(T) BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x49; BYTE $(0xc0|T<<3)
// TILELOADD (BX)(R10*1), T
#define LOADACTS(T) BYTE $0xc4; BYTE $0xa2; BYTE $0x7b; BYTE $0x4b; BYTE $(0x04|T<<3); BYTE $0x13
// TILELOADD (SI)(R12*1), T
#define LOADQUANTS(T) BYTE $0xc4; BYTE $0xa2; BYTE $0x7b; BYTE $0x4b; BYTE $(0x04|T<<3); BYTE $0x26
// TILESTORED T, (DX)(R12*1)
#define STOREINTS(T) BYTE $0xc4; BYTE $0xa2; BYTE $0x7a; BYTE $0x4b; BYTE $(0x04|T<<3); BYTE $0x22
// TDPBSUD B, A, D: signed A, unsigned B
#define TDPBSUD(D, A, B) BYTE $0xc4; BYTE $0xe2; BYTE $((15-B)<<3|2); BYTE $0x5e; BYTE $(0xc0|D<<3|A)

#define ROWS4(op, H) op(H, 0, Z0); op(H, 1, Z1); op(H, 2, Z2); op(H, 3, Z3)
#define ROWS8(op, H) ROWS4(op, H); op(H, 4, Z4); op(H, 5, Z5); op(H, 6, Z6); op(H, 7, Z7)
#define ROWS12(op, H) ROWS8(op, H); op(H, 8, Z8); op(H, 9, Z9); op(H, 10, Z10); op(H, 11, Z11)
#define ROWS16(op, H) ROWS12(op, H); op(H, 12, Z12); op(H, 13, Z13); op(H, 14, Z14); op(H, 15, Z15)

#define ZERO(H, m, F) VPXORQ F, F, F
// The sum of row m goes on from what dst holds; rows that are only padding do not.
#define RESUME(H, m, F) VMOVUPS (CX), F; ADDQ DX, CX; DECQ R13; JZ begin
#define STORE(H, m, F) VMOVUPS F, (CX); ADDQ DX, CX; DECQ R13; JZ stored

// The ops of one row of a block, in the order of the vector kernels.
#define MULADD(H, m, F) VMULPS.BCST (32*H+4*m)(R8), Z24, Z17; VFMADD231PS Z17, Z16, F
#define AFFINE(H, m, F) \
	VCVTDQ2PS (64*m)(DI), Z16 \
	MULADD(H, m, F)           \
	VFMADD231PS.BCST (36*H+4*m)(R8), Z25, F
#define SYMMETRIC(H, m, F) \
	VMOVDQU64 (64*m)(DI), Z16                 \
	VPADDD.BCST (40*H+4*m)(R8), Z16, Z16      \
	VCVTDQ2PS Z16, Z16                        \
	MULADD(H, m, F)
// MULTIPLY stores the products of the block at BX and SI at DX.
#define MULTIPLY(H) \
	TILEZERO(0)                \
	LOADACTS(1)                \
	LOADQUANTS(2)              \
	TDPBSUD(0, 1, 2)           \
	STOREINTS(0)               \
	ADDQ $1024, DX             \
	ADDQ $(52*H), BX           \
	ADDQ $512, SI

#define SUMAFFINE(ROWS, H) \
	VMOVUPS (AX), Z24          \
	VMOVUPS (R9), Z25          \
	ROWS(AFFINE, H)            \
	ADDQ $64, AX               \
	ADDQ $64, R9               \
	ADDQ $1024, DI             \
	ADDQ $(52*H), R8

#define SUMSYMMETRIC(ROWS, H) \
	VMOVUPS (AX), Z24          \
	ROWS(SYMMETRIC, H)         \
	ADDQ $64, AX               \
	ADDQ $1024, DI             \
	ADDQ $(52*H), R8

// The offsets in tileCall.
#define DST 64
#define STRIDE 72
#define PANEL 80
#define PANELBYTES 88
#define PANELS 96
#define VALID 104
#define QUANTS 112
#define SCALES 120
#define MINS 128
#define TILEQUANTS 136
#define TILESCALES 144
#define TILES 152
#define BLOCKS 160
#define SECTION 168
#define WORK 176
#define GOESON 184
#define NOW 192
#define DSTNOW 200
#define OUT 208
#define PANELNOW 216
#define PANELSLEFT 224
#define TILE 232

// KERNEL walks sections of K, in each the panels, and for each panel the tiles: a
// panel's blocks are then read from the first-level cache for all tiles but the
// first. Where sums go on from an earlier section they are read back from dst.
#define KERNEL(ROWS, H, SUM) \
	MOVQ call+0(FP), R11       \
	LDTILECFG                  \
	MOVQ $32, R10              \
	MOVQ $64, R12              \
	MOVQ $0, GOESON(R11)       \
section:                           \
	MOVQ SECTION(R11), AX      \
	CMPQ AX, BLOCKS(R11)       \
	CMOVQGT BLOCKS(R11), AX    \
	MOVQ AX, NOW(R11)          \
	MOVQ DST(R11), AX          \
	MOVQ AX, DSTNOW(R11)       \
	MOVQ PANEL(R11), AX        \
	MOVQ AX, PANELNOW(R11)     \
	MOVQ PANELS(R11), AX       \
	MOVQ AX, PANELSLEFT(R11)   \
panel:                             \
	MOVQ $0, TILE(R11)         \
	MOVQ DSTNOW(R11), CX       \
	MOVQ CX, OUT(R11)          \
tile:                              \
	MOVQ PANELNOW(R11), BX     \
	MOVQ BX, R8                \
	MOVQ TILE(R11), AX         \
	MOVQ AX, SI                \
	IMULQ TILEQUANTS(R11), SI  \
	ADDQ QUANTS(R11), SI       \
	IMULQ TILESCALES(R11), AX  \
	MOVQ AX, R9                \
	ADDQ SCALES(R11), AX       \
	ADDQ MINS(R11), R9         \
	ROWS(ZERO, H)              \
	CMPQ GOESON(R11), $0       \
	JEQ  begin                 \
	MOVQ OUT(R11), CX          \
	MOVQ STRIDE(R11), DX       \
	MOVQ VALID(R11), R13       \
	ROWS(RESUME, H)            \
begin:                             \
	MOVQ WORK(R11), DX         \
	MOVQ DX, DI                \
	MOVQ NOW(R11), CX          \
multiply:                          \
	MULTIPLY(H)                \
	DECQ CX                    \
	JNZ  multiply              \
	MOVQ NOW(R11), CX          \
sum:                               \
	SUM(ROWS, H)               \
	DECQ CX                    \
	JNZ  sum                   \
	MOVQ OUT(R11), CX          \
	MOVQ STRIDE(R11), DX       \
	MOVQ VALID(R11), R13       \
	ROWS(STORE, H)             \
stored:                            \
	ADDQ $64, OUT(R11)         \
	INCQ TILE(R11)             \
	MOVQ TILE(R11), AX         \
	CMPQ AX, TILES(R11)        \
	JLT  tile                  \
	MOVQ PANELBYTES(R11), AX   \
	ADDQ AX, PANELNOW(R11)     \
	MOVQ STRIDE(R11), AX       \
	IMULQ $H, AX               \
	ADDQ AX, DSTNOW(R11)       \
	DECQ PANELSLEFT(R11)       \
	JNZ  panel                 \
	MOVQ NOW(R11), AX          \
	SUBQ AX, BLOCKS(R11)       \
	JZ   over                  \
	IMUL3Q $(52*H), AX, CX     \
	ADDQ CX, PANEL(R11)        \
	SHLQ $9, AX                \
	ADDQ AX, QUANTS(R11)       \
	ADDQ $4096, SCALES(R11)    \
	ADDQ $4096, MINS(R11)      \
	MOVQ $1, GOESON(R11)       \
	JMP  section               \
over:                              \
	TILERELEASE                \
	VZEROUPPER                 \
	RET

// func affine16AMX(call *tileCall)
TEXT ·affine16AMX(SB), NOSPLIT, $0-8
	KERNEL(ROWS16, 16, SUMAFFINE)

// func affine12AMX(call *tileCall)
TEXT ·affine12AMX(SB), NOSPLIT, $0-8
	KERNEL(ROWS12, 12, SUMAFFINE)

// func affine8AMX(call *tileCall)
TEXT ·affine8AMX(SB), NOSPLIT, $0-8
	KERNEL(ROWS8, 8, SUMAFFINE)

// func affine4AMX(call *tileCall)
TEXT ·affine4AMX(SB), NOSPLIT, $0-8
	KERNEL(ROWS4, 4, SUMAFFINE)

// func symmetric16AMX(call *tileCall)
TEXT ·symmetric16AMX(SB), NOSPLIT, $0-8
	KERNEL(ROWS16, 16, SUMSYMMETRIC)

// func symmetric12AMX(call *tileCall)
TEXT ·symmetric12AMX(SB), NOSPLIT, $0-8
	KERNEL(ROWS12, 12, SUMSYMMETRIC)

// func symmetric8AMX(call *tileCall)
TEXT ·symmetric8AMX(SB), NOSPLIT, $0-8
	KERNEL(ROWS8, 8, SUMSYMMETRIC)

// func symmetric4AMX(call *tileCall)
TEXT ·symmetric4AMX(SB), NOSPLIT, $0-8
	KERNEL(ROWS4, 4, SUMSYMMETRIC)
