#include "textflag.h"

// Kernels of attention with AVX2: attention_avx512_amd64.s in halves of eight
// lanes, with the same results. Rows of scores lie spanLen (256) float32 apart.

#define LOADF32(p, Y) VMOVUPS p, Y
#define LOADF16(p, Y) VCVTPH2PS p, Y
#define LOADBF16(p, Y) VPMOVZXWD p, Y; VPSLLD $16, Y, Y

#define MULADD(q, A, B) \
	VBROADCASTSS q, Y10         \
	VFMADD231PS Y10, Y8, A      \
	VFMADD231PS Y10, Y9, B

// SCORES does the rows four at a time.
//
// DI dst   SI q, at the four rows   R9 q at the element   DX keys   R8 bytes of
// a row of q, R11 of three   R10 rows left
#define SCORES(LOAD, SIZE) \
	MOVQ dst+0(FP), DI        \
	MOVQ q+8(FP), SI          \
	MOVQ rows+32(FP), R10     \
	MOVQ dim+24(FP), R8       \
	SHLQ $2, R8               \
	LEAQ (R8)(R8*2), R11      \
quad:                             \
	MOVQ keys+16(FP), DX      \
	MOVQ dim+24(FP), CX       \
	MOVQ SI, R9               \
	VPXOR Y0, Y0, Y0          \
	VPXOR Y1, Y1, Y1          \
	VPXOR Y2, Y2, Y2          \
	VPXOR Y3, Y3, Y3          \
	VPXOR Y4, Y4, Y4          \
	VPXOR Y5, Y5, Y5          \
	VPXOR Y6, Y6, Y6          \
	VPXOR Y7, Y7, Y7          \
loop:                             \
	LOAD((DX), Y8)            \
	LOAD((8*SIZE)(DX), Y9)    \
	MULADD((R9), Y0, Y1)      \
	MULADD((R9)(R8*1), Y2, Y3)  \
	MULADD((R9)(R8*2), Y4, Y5)  \
	MULADD((R9)(R11*1), Y6, Y7) \
	ADDQ $4, R9               \
	ADDQ $(16*SIZE), DX       \
	DECQ CX                   \
	JNZ  loop                 \
	VMOVUPS Y0, (DI)          \
	VMOVUPS Y1, 32(DI)        \
	VMOVUPS Y2, 1024(DI)      \
	VMOVUPS Y3, 1056(DI)      \
	VMOVUPS Y4, 2048(DI)      \
	VMOVUPS Y5, 2080(DI)      \
	VMOVUPS Y6, 3072(DI)      \
	VMOVUPS Y7, 3104(DI)      \
	ADDQ $4096, DI            \
	LEAQ (SI)(R8*4), SI       \
	SUBQ $4, R10              \
	JNZ  quad                 \
	VZEROUPPER                \
	RET

// MIX4 adds n weighted values to four rows of sums, 16 elements at a time.
//
// DI, R9 first and third row of sums   R10 bytes of a row of sums
// SI weights   DX values   R12 bytes of a value   R13 elements left   AX value
#define WEIGHT(r, A, B) \
	VBROADCASTSS (1024*r)(R8), Y10 \
	VFMADD231PS Y10, Y8, A         \
	VFMADD231PS Y10, Y9, B

#define MIX4(LOAD, SIZE) \
	MOVQ o+0(FP), DI             \
	MOVQ p+8(FP), SI             \
	MOVQ values+16(FP), DX       \
	MOVQ n+24(FP), BX            \
	MOVQ dim+32(FP), R13         \
	MOVQ R13, R10                \
	SHLQ $2, R10                 \
	LEAQ (DI)(R10*2), R9         \
	MOVQ R13, R12                \
	IMULQ $SIZE, R12             \
chunk:                               \
	VMOVUPS (DI), Y0             \
	VMOVUPS 32(DI), Y1           \
	VMOVUPS (DI)(R10*1), Y2      \
	VMOVUPS 32(DI)(R10*1), Y3    \
	VMOVUPS (R9), Y4             \
	VMOVUPS 32(R9), Y5           \
	VMOVUPS (R9)(R10*1), Y6      \
	VMOVUPS 32(R9)(R10*1), Y7    \
	MOVQ SI, R8                  \
	MOVQ DX, AX                  \
	MOVQ BX, CX                  \
value:                               \
	LOAD((AX), Y8)               \
	LOAD((8*SIZE)(AX), Y9)       \
	WEIGHT(0, Y0, Y1)            \
	WEIGHT(1, Y2, Y3)            \
	WEIGHT(2, Y4, Y5)            \
	WEIGHT(3, Y6, Y7)            \
	ADDQ $4, R8                  \
	ADDQ R12, AX                 \
	DECQ CX                      \
	JNZ  value                   \
	VMOVUPS Y0, (DI)             \
	VMOVUPS Y1, 32(DI)           \
	VMOVUPS Y2, (DI)(R10*1)      \
	VMOVUPS Y3, 32(DI)(R10*1)    \
	VMOVUPS Y4, (R9)             \
	VMOVUPS Y5, 32(R9)           \
	VMOVUPS Y6, (R9)(R10*1)      \
	VMOVUPS Y7, 32(R9)(R10*1)    \
	ADDQ $64, DI                 \
	ADDQ $64, R9                 \
	ADDQ $(16*SIZE), DX          \
	SUBQ $16, R13                \
	JNZ  chunk                   \
	VZEROUPPER                   \
	RET

// MIX1 is MIX4 for one row.
#define MIX1(LOAD, SIZE) \
	MOVQ o+0(FP), DI               \
	MOVQ p+8(FP), SI               \
	MOVQ values+16(FP), DX         \
	MOVQ n+24(FP), BX              \
	MOVQ dim+32(FP), R13           \
	MOVQ R13, R12                  \
	IMULQ $SIZE, R12               \
chunk:                                 \
	VMOVUPS (DI), Y0               \
	VMOVUPS 32(DI), Y1             \
	MOVQ SI, R8                    \
	MOVQ DX, AX                    \
	MOVQ BX, CX                    \
value:                                 \
	LOAD((AX), Y8)                 \
	LOAD((8*SIZE)(AX), Y9)         \
	WEIGHT(0, Y0, Y1)              \
	ADDQ $4, R8                    \
	ADDQ R12, AX                   \
	DECQ CX                        \
	JNZ  value                     \
	VMOVUPS Y0, (DI)               \
	VMOVUPS Y1, 32(DI)             \
	ADDQ $64, DI                   \
	ADDQ $(16*SIZE), DX            \
	SUBQ $16, R13                  \
	JNZ  chunk                     \
	VZEROUPPER                     \
	RET

// func scoresF32AVX2(dst, q, keys pointer, dim, rows int)
TEXT ·scoresF32AVX2(SB), NOSPLIT, $0-40
	SCORES(LOADF32, 4)

// func mixF32x1AVX2(o, p, values pointer, n, dim int)
TEXT ·mixF32x1AVX2(SB), NOSPLIT, $0-40
	MIX1(LOADF32, 4)

// func mixF32x4AVX2(o, p, values pointer, n, dim int)
TEXT ·mixF32x4AVX2(SB), NOSPLIT, $0-40
	MIX4(LOADF32, 4)

// func scoresF16AVX2(dst, q, keys pointer, dim, rows int)
TEXT ·scoresF16AVX2(SB), NOSPLIT, $0-40
	SCORES(LOADF16, 2)

// func mixF16x1AVX2(o, p, values pointer, n, dim int)
TEXT ·mixF16x1AVX2(SB), NOSPLIT, $0-40
	MIX1(LOADF16, 2)

// func mixF16x4AVX2(o, p, values pointer, n, dim int)
TEXT ·mixF16x4AVX2(SB), NOSPLIT, $0-40
	MIX4(LOADF16, 2)

// func scoresBF16AVX2(dst, q, keys pointer, dim, rows int)
TEXT ·scoresBF16AVX2(SB), NOSPLIT, $0-40
	SCORES(LOADBF16, 2)

// func mixBF16x1AVX2(o, p, values pointer, n, dim int)
TEXT ·mixBF16x1AVX2(SB), NOSPLIT, $0-40
	MIX1(LOADBF16, 2)

// func mixBF16x4AVX2(o, p, values pointer, n, dim int)
TEXT ·mixBF16x4AVX2(SB), NOSPLIT, $0-40
	MIX4(LOADBF16, 2)

// func prefetchAMD64(p pointer, n int)
TEXT ·prefetchAMD64(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), SI
	MOVQ n+8(FP), CX
line:
	PREFETCHT1 (SI)
	PREFETCHT1 64(SI)
	ADDQ $128, SI
	SUBQ $128, CX
	JGT  line
	RET
