#include "textflag.h"

// Kernels of attention. Rows of scores lie spanLen (256) float32 apart.

#define ROWS4(op) op(0, Z0); op(1, Z1); op(2, Z2); op(3, Z3)
#define ROWS8(op) ROWS4(op); op(4, Z4); op(5, Z5); op(6, Z6); op(7, Z7)
#define ROWS12(op) ROWS8(op); op(8, Z8); op(9, Z9); op(10, Z10); op(11, Z11)

#define ZERO(r, S) VPXORQ S, S, S
#define MULADD(r, S) VFMADD231PS.BCST (4*r)(SI), Z24, S
#define STORE(r, S) VMOVUPS S, (1024*r)(DI)

#define LOADF32(p, Z) VMOVUPS p, Z
#define LOADF16(p, Z) VCVTPH2PS p, Z
#define LOADBF16(p, Z) VPMOVZXWD p, Z; VPSLLD $16, Z, Z

// SCORES multiplies one tile of keys [dim][16], elements of SIZE bytes, with a
// panel of queries [dim][H].
#define SCORES(ROWS, H, LOAD, SIZE) \
	MOVQ dst+0(FP), DI    \
	MOVQ q+8(FP), SI      \
	MOVQ keys+16(FP), DX  \
	MOVQ dim+24(FP), CX   \
	ROWS(ZERO)            \
loop:                         \
	LOAD((DX), Z24)       \
	ROWS(MULADD)          \
	ADDQ $(4*H), SI       \
	ADDQ $(16*SIZE), DX   \
	DECQ CX               \
	JNZ  loop             \
	ROWS(STORE)           \
	VZEROUPPER            \
	RET

// MIX adds n weighted values to four rows of sums, 64 elements of a head at a
// time while there are, then 16.
//
// DI, R9 first and third row of sums   R10 bytes of a row of sums
// SI weights   DX values   R12 bytes of a value   R13 elements left   AX value
#define ACCUMULATE(r, A, B, C, D) \
	VBROADCASTSS (1024*r)(R8), Z28 \
	VFMADD231PS Z24, Z28, A        \
	VFMADD231PS Z25, Z28, B        \
	VFMADD231PS Z26, Z28, C        \
	VFMADD231PS Z27, Z28, D

#define ROW64(op, p, A, B, C, D) op(p, 0, A); op(p, 64, B); op(p, 128, C); op(p, 192, D)
#define ROWIN(p, off, Z) VMOVUPS off(p), Z
#define ROWIN1(p, off, Z) VMOVUPS off(p)(R10*1), Z
#define ROWOUT(p, off, Z) VMOVUPS Z, off(p)
#define ROWOUT1(p, off, Z) VMOVUPS Z, off(p)(R10*1)

#define MIX4(LOAD, SIZE) \
	MOVQ o+0(FP), DI                        \
	MOVQ p+8(FP), SI                        \
	MOVQ values+16(FP), DX                  \
	MOVQ n+24(FP), BX                       \
	MOVQ dim+32(FP), R13                    \
	MOVQ R13, R10                           \
	SHLQ $2, R10                            \
	LEAQ (DI)(R10*2), R9                    \
	MOVQ R13, R12                           \
	IMULQ $SIZE, R12                        \
chunk:                                          \
	CMPQ R13, $64                           \
	JLT  rest                               \
	ROW64(ROWIN, DI, Z0, Z1, Z2, Z3)        \
	ROW64(ROWIN1, DI, Z4, Z5, Z6, Z7)       \
	ROW64(ROWIN, R9, Z8, Z9, Z10, Z11)      \
	ROW64(ROWIN1, R9, Z12, Z13, Z14, Z15)   \
	MOVQ SI, R8                             \
	MOVQ DX, AX                             \
	MOVQ BX, CX                             \
value:                                          \
	LOAD((AX), Z24)                         \
	LOAD((16*SIZE)(AX), Z25)                \
	LOAD((32*SIZE)(AX), Z26)                \
	LOAD((48*SIZE)(AX), Z27)                \
	ACCUMULATE(0, Z0, Z1, Z2, Z3)           \
	ACCUMULATE(1, Z4, Z5, Z6, Z7)           \
	ACCUMULATE(2, Z8, Z9, Z10, Z11)         \
	ACCUMULATE(3, Z12, Z13, Z14, Z15)       \
	ADDQ $4, R8                             \
	ADDQ R12, AX                            \
	DECQ CX                                 \
	JNZ  value                              \
	ROW64(ROWOUT, DI, Z0, Z1, Z2, Z3)       \
	ROW64(ROWOUT1, DI, Z4, Z5, Z6, Z7)      \
	ROW64(ROWOUT, R9, Z8, Z9, Z10, Z11)     \
	ROW64(ROWOUT1, R9, Z12, Z13, Z14, Z15)  \
	ADDQ $256, DI                           \
	ADDQ $256, R9                           \
	ADDQ $(64*SIZE), DX                     \
	SUBQ $64, R13                           \
	JMP  chunk                              \
rest:                                           \
	TESTQ R13, R13                          \
	JZ   done                               \
	VMOVUPS (DI), Z0                        \
	VMOVUPS (DI)(R10*1), Z4                 \
	VMOVUPS (R9), Z8                        \
	VMOVUPS (R9)(R10*1), Z12                \
	MOVQ SI, R8                             \
	MOVQ DX, AX                             \
	MOVQ BX, CX                             \
narrow:                                         \
	LOAD((AX), Z24)                         \
	VFMADD231PS.BCST (R8), Z24, Z0          \
	VFMADD231PS.BCST 1024(R8), Z24, Z4      \
	VFMADD231PS.BCST 2048(R8), Z24, Z8      \
	VFMADD231PS.BCST 3072(R8), Z24, Z12     \
	ADDQ $4, R8                             \
	ADDQ R12, AX                            \
	DECQ CX                                 \
	JNZ  narrow                             \
	VMOVUPS Z0, (DI)                        \
	VMOVUPS Z4, (DI)(R10*1)                 \
	VMOVUPS Z8, (R9)                        \
	VMOVUPS Z12, (R9)(R10*1)                \
	ADDQ $64, DI                            \
	ADDQ $64, R9                            \
	ADDQ $(16*SIZE), DX                     \
	SUBQ $16, R13                           \
	JMP  rest                               \
done:                                           \
	VZEROUPPER                              \
	RET

// MIX1 is MIX4 for one row, 16 elements at a time.
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

// func scoresF32x4AVX512(dst, q, keys pointer, dim int)
TEXT ·scoresF32x4AVX512(SB), NOSPLIT, $0-32
	SCORES(ROWS4, 4, LOADF32, 4)

// func scoresF32x8AVX512(dst, q, keys pointer, dim int)
TEXT ·scoresF32x8AVX512(SB), NOSPLIT, $0-32
	SCORES(ROWS8, 8, LOADF32, 4)

// func scoresF32x12AVX512(dst, q, keys pointer, dim int)
TEXT ·scoresF32x12AVX512(SB), NOSPLIT, $0-32
	SCORES(ROWS12, 12, LOADF32, 4)

// func mixF32x1AVX512(o, p, values pointer, n, dim int)
TEXT ·mixF32x1AVX512(SB), NOSPLIT, $0-40
	MIX1(LOADF32, 4)

// func mixF32x4AVX512(o, p, values pointer, n, dim int)
TEXT ·mixF32x4AVX512(SB), NOSPLIT, $0-40
	MIX4(LOADF32, 4)

// func scoresF16x4AVX512(dst, q, keys pointer, dim int)
TEXT ·scoresF16x4AVX512(SB), NOSPLIT, $0-32
	SCORES(ROWS4, 4, LOADF16, 2)

// func scoresF16x8AVX512(dst, q, keys pointer, dim int)
TEXT ·scoresF16x8AVX512(SB), NOSPLIT, $0-32
	SCORES(ROWS8, 8, LOADF16, 2)

// func scoresF16x12AVX512(dst, q, keys pointer, dim int)
TEXT ·scoresF16x12AVX512(SB), NOSPLIT, $0-32
	SCORES(ROWS12, 12, LOADF16, 2)

// func mixF16x1AVX512(o, p, values pointer, n, dim int)
TEXT ·mixF16x1AVX512(SB), NOSPLIT, $0-40
	MIX1(LOADF16, 2)

// func mixF16x4AVX512(o, p, values pointer, n, dim int)
TEXT ·mixF16x4AVX512(SB), NOSPLIT, $0-40
	MIX4(LOADF16, 2)

// func scoresBF16x4AVX512(dst, q, keys pointer, dim int)
TEXT ·scoresBF16x4AVX512(SB), NOSPLIT, $0-32
	SCORES(ROWS4, 4, LOADBF16, 2)

// func scoresBF16x8AVX512(dst, q, keys pointer, dim int)
TEXT ·scoresBF16x8AVX512(SB), NOSPLIT, $0-32
	SCORES(ROWS8, 8, LOADBF16, 2)

// func scoresBF16x12AVX512(dst, q, keys pointer, dim int)
TEXT ·scoresBF16x12AVX512(SB), NOSPLIT, $0-32
	SCORES(ROWS12, 12, LOADBF16, 2)

// func mixBF16x1AVX512(o, p, values pointer, n, dim int)
TEXT ·mixBF16x1AVX512(SB), NOSPLIT, $0-40
	MIX1(LOADBF16, 2)

// func mixBF16x4AVX512(o, p, values pointer, n, dim int)
TEXT ·mixBF16x4AVX512(SB), NOSPLIT, $0-40
	MIX4(LOADBF16, 2)
