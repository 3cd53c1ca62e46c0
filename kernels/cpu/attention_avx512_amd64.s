#include "textflag.h"

// Kernels of attention. Rows of scores lie spanLen (256) float32 apart. Keys and
// values are given as lists of tiles of 16 positions, with two more addresses at
// the end of a list: the tiles two further on are asked for ahead of time.
//
// Two registers of sums belong to a row. Rows of q and of sums lie R12 bytes
// apart: rows 0 to 2 from DI, then three each from R9, R10 and R11.

#define ROWS4(op) \
	op(0, (DI), Z0, Z1); op(1, (DI)(R12*1), Z2, Z3); op(2, (DI)(R12*2), Z4, Z5)  \
	op(3, (R9), Z6, Z7)
#define ROWS8(op) \
	ROWS4(op)                                                                     \
	op(4, (R9)(R12*1), Z8, Z9); op(5, (R9)(R12*2), Z10, Z11)                      \
	op(6, (R10), Z12, Z13); op(7, (R10)(R12*1), Z14, Z15)
#define ROWS12(op) \
	ROWS8(op)                                                                     \
	op(8, (R10)(R12*2), Z16, Z17); op(9, (R11), Z18, Z19)                         \
	op(10, (R11)(R12*1), Z20, Z21); op(11, (R11)(R12*2), Z22, Z23)

// BASES sets R9, R10 and R11 from DI and R12.
#define BASES \
	LEAQ (DI)(R12*2), R9   \
	ADDQ R12, R9           \
	LEAQ (R9)(R12*2), R10  \
	ADDQ R12, R10          \
	LEAQ (R10)(R12*2), R11 \
	ADDQ R12, R11

#define LOADF32(p, Z) VMOVUPS p, Z
#define LOADF16(p, Z) VCVTPH2PS p, Z
#define LOADBF16(p, Z) VPMOVZXWD p, Z; VPSLLD $16, Z, Z

#define ZERO(r, at, A, B) VPXORQ A, A, A; VPXORQ B, B, B
#define SCORE(r, at, A, B) VBROADCASTSS at, Z30; VFMADD231PS Z28, Z30, A; VFMADD231PS Z29, Z30, B
#define STORE(r, at, A, B) VMOVUPS A, (1024*r)(SI); VMOVUPS B, (1024*r+64)(SI)

// SCORES multiplies rows of queries with tiles of keys [dim][16], elements of SIZE
// bytes, two tiles at a time: 12 rows of both have 24 sums in registers, and an
// element of a query is read once for both.
//
// SI scores   DX list   AX, BX keys   R8, R13 keys ahead   R14 tiles left
#define SCORES(ROWS, LOAD, SIZE) \
	MOVQ dst+0(FP), SI       \
	MOVQ q+8(FP), DI         \
	MOVQ keys+16(FP), DX     \
	MOVQ tiles+24(FP), R14   \
	MOVQ dim+32(FP), R12     \
	SHLQ $2, R12             \
	BASES                    \
pair:                            \
	MOVQ (DX), AX            \
	MOVQ 8(DX), BX           \
	MOVQ 16(DX), R8          \
	MOVQ 24(DX), R13         \
	MOVQ dim+32(FP), CX      \
	ROWS(ZERO)               \
loop:                            \
	LOAD((AX), Z28)          \
	LOAD((BX), Z29)          \
	PREFETCHT1 (R8)          \
	PREFETCHT1 (R13)         \
	ROWS(SCORE)              \
	ADDQ $4, DI              \
	ADDQ $4, R9              \
	ADDQ $4, R10             \
	ADDQ $4, R11             \
	ADDQ $(16*SIZE), AX      \
	ADDQ $(16*SIZE), BX      \
	ADDQ $(16*SIZE), R8      \
	ADDQ $(16*SIZE), R13     \
	DECQ CX                  \
	JNZ  loop                \
	ROWS(STORE)              \
	SUBQ R12, DI             \
	SUBQ R12, R9             \
	SUBQ R12, R10            \
	SUBQ R12, R11            \
	ADDQ $128, SI            \
	ADDQ $16, DX             \
	SUBQ $2, R14             \
	JG   pair                \
	VZEROUPPER               \
	RET

#define SUMIN(r, at, A, B) VMOVUPS at, A; VMOVUPS 64 at, B
#define SUMOUT(r, at, A, B) VMOVUPS A, at; VMOVUPS B, 64 at
#define WEIGH(r, at, A, B) VBROADCASTSS (1024*r)(R8), Z30; VFMADD231PS Z28, Z30, A; VFMADD231PS Z29, Z30, B
#define SUMIN16(r, at, A, B) VMOVUPS at, A
#define SUMOUT16(r, at, A, B) VMOVUPS A, at
#define WEIGH16(r, at, A, B) VFMADD231PS.BCST (1024*r)(R8), Z28, A

// TILES runs VALUE over n values, tile by tile.
//
// R8 weights   BX list   AX value, R13 bytes of a value, R15 offset in it   R11 the
// value ahead   R14 values left   CX those left of the tile
#define TILES(tile, value, VALUE) \
	MOVQ p+8(FP), R8         \
	MOVQ values+16(FP), BX   \
	MOVQ n+24(FP), R14       \
tile:                            \
	MOVQ (BX), AX            \
	MOVQ 16(BX), R11         \
	ADDQ R15, AX             \
	ADDQ R15, R11            \
	MOVQ $16, CX             \
	CMPQ R14, CX             \
	CMOVQLT R14, CX          \
	SUBQ CX, R14             \
	ADDQ $8, BX              \
value:                           \
	VALUE                    \
	PREFETCHT1 (R11)         \
	ADDQ $4, R8              \
	ADDQ R13, AX             \
	ADDQ R13, R11            \
	DECQ CX                  \
	JNZ  value               \
	TESTQ R14, R14           \
	JNZ  tile

#define VALUE32(ROWS, LOAD, SIZE) LOAD((AX), Z28); LOAD((16*SIZE)(AX), Z29); ROWS(WEIGH)
#define VALUE16(ROWS, LOAD) LOAD((AX), Z28); ROWS(WEIGH16)

// MIX adds n weighted values to rows of sums, 32 elements of a head at a time,
// then 16.
#define MIX(ROWS, LOAD, SIZE) \
	MOVQ o+0(FP), DI                                    \
	MOVQ dim+32(FP), R12                                \
	MOVQ R12, R13                                       \
	IMULQ $SIZE, R13                                    \
	SHLQ $2, R12                                        \
	MOVQ $0, R15                                        \
chunk:                                                      \
	LEAQ (32*SIZE)(R15), AX                             \
	CMPQ AX, R13                                        \
	JGT  rest                                           \
	BASES                                               \
	ROWS(SUMIN)                                         \
	TILES(tile, value, VALUE32(ROWS, LOAD, SIZE))       \
	BASES                                               \
	ROWS(SUMOUT)                                        \
	ADDQ $128, DI                                       \
	ADDQ $(32*SIZE), R15                                \
	JMP  chunk                                          \
rest:                                                       \
	CMPQ R15, R13                                       \
	JEQ  done                                           \
	BASES                                               \
	ROWS(SUMIN16)                                       \
	TILES(tile16, value16, VALUE16(ROWS, LOAD))         \
	BASES                                               \
	ROWS(SUMOUT16)                                      \
done:                                                       \
	VZEROUPPER                                          \
	RET

// MIX1 adds n weighted values that lie one after another to one row of sums, 16
// elements at a time.
#define MIX1(LOAD, SIZE) \
	MOVQ o+0(FP), DI               \
	MOVQ p+8(FP), SI               \
	MOVQ values+16(FP), DX         \
	MOVQ n+24(FP), BX              \
	MOVQ dim+32(FP), R13           \
	MOVQ R13, R12                  \
	IMULQ $SIZE, R12               \
chunk:                                 \
	VMOVUPS (DI), Z0               \
	MOVQ SI, R8                    \
	MOVQ DX, AX                    \
	MOVQ BX, CX                    \
value:                                 \
	LOAD((AX), Z24)                \
	VFMADD231PS.BCST (R8), Z24, Z0 \
	ADDQ $4, R8                    \
	ADDQ R12, AX                   \
	DECQ CX                        \
	JNZ  value                     \
	VMOVUPS Z0, (DI)               \
	ADDQ $64, DI                   \
	ADDQ $(16*SIZE), DX            \
	SUBQ $16, R13                  \
	JNZ  chunk                     \
	VZEROUPPER                     \
	RET

// func scoresF32x4AVX512(dst, q, keys pointer, tiles, dim int)
TEXT ·scoresF32x4AVX512(SB), NOSPLIT, $0-40
	SCORES(ROWS4, LOADF32, 4)

// func scoresF32x8AVX512(dst, q, keys pointer, tiles, dim int)
TEXT ·scoresF32x8AVX512(SB), NOSPLIT, $0-40
	SCORES(ROWS8, LOADF32, 4)

// func scoresF32x12AVX512(dst, q, keys pointer, tiles, dim int)
TEXT ·scoresF32x12AVX512(SB), NOSPLIT, $0-40
	SCORES(ROWS12, LOADF32, 4)

// func mixF32x1AVX512(o, p, values pointer, n, dim int)
TEXT ·mixF32x1AVX512(SB), NOSPLIT, $0-40
	MIX1(LOADF32, 4)

// func mixF32x4AVX512(o, p, values pointer, n, dim int)
TEXT ·mixF32x4AVX512(SB), NOSPLIT, $0-40
	MIX(ROWS4, LOADF32, 4)

// func mixF32x8AVX512(o, p, values pointer, n, dim int)
TEXT ·mixF32x8AVX512(SB), NOSPLIT, $0-40
	MIX(ROWS8, LOADF32, 4)

// func mixF32x12AVX512(o, p, values pointer, n, dim int)
TEXT ·mixF32x12AVX512(SB), NOSPLIT, $0-40
	MIX(ROWS12, LOADF32, 4)

// func scoresF16x4AVX512(dst, q, keys pointer, tiles, dim int)
TEXT ·scoresF16x4AVX512(SB), NOSPLIT, $0-40
	SCORES(ROWS4, LOADF16, 2)

// func scoresF16x8AVX512(dst, q, keys pointer, tiles, dim int)
TEXT ·scoresF16x8AVX512(SB), NOSPLIT, $0-40
	SCORES(ROWS8, LOADF16, 2)

// func scoresF16x12AVX512(dst, q, keys pointer, tiles, dim int)
TEXT ·scoresF16x12AVX512(SB), NOSPLIT, $0-40
	SCORES(ROWS12, LOADF16, 2)

// func mixF16x1AVX512(o, p, values pointer, n, dim int)
TEXT ·mixF16x1AVX512(SB), NOSPLIT, $0-40
	MIX1(LOADF16, 2)

// func mixF16x4AVX512(o, p, values pointer, n, dim int)
TEXT ·mixF16x4AVX512(SB), NOSPLIT, $0-40
	MIX(ROWS4, LOADF16, 2)

// func mixF16x8AVX512(o, p, values pointer, n, dim int)
TEXT ·mixF16x8AVX512(SB), NOSPLIT, $0-40
	MIX(ROWS8, LOADF16, 2)

// func mixF16x12AVX512(o, p, values pointer, n, dim int)
TEXT ·mixF16x12AVX512(SB), NOSPLIT, $0-40
	MIX(ROWS12, LOADF16, 2)

// func scoresBF16x4AVX512(dst, q, keys pointer, tiles, dim int)
TEXT ·scoresBF16x4AVX512(SB), NOSPLIT, $0-40
	SCORES(ROWS4, LOADBF16, 2)

// func scoresBF16x8AVX512(dst, q, keys pointer, tiles, dim int)
TEXT ·scoresBF16x8AVX512(SB), NOSPLIT, $0-40
	SCORES(ROWS8, LOADBF16, 2)

// func scoresBF16x12AVX512(dst, q, keys pointer, tiles, dim int)
TEXT ·scoresBF16x12AVX512(SB), NOSPLIT, $0-40
	SCORES(ROWS12, LOADBF16, 2)

// func mixBF16x1AVX512(o, p, values pointer, n, dim int)
TEXT ·mixBF16x1AVX512(SB), NOSPLIT, $0-40
	MIX1(LOADBF16, 2)

// func mixBF16x4AVX512(o, p, values pointer, n, dim int)
TEXT ·mixBF16x4AVX512(SB), NOSPLIT, $0-40
	MIX(ROWS4, LOADBF16, 2)

// func mixBF16x8AVX512(o, p, values pointer, n, dim int)
TEXT ·mixBF16x8AVX512(SB), NOSPLIT, $0-40
	MIX(ROWS8, LOADBF16, 2)

// func mixBF16x12AVX512(o, p, values pointer, n, dim int)
TEXT ·mixBF16x12AVX512(SB), NOSPLIT, $0-40
	MIX(ROWS12, LOADBF16, 2)
