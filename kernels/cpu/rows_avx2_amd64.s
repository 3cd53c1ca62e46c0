#include "textflag.h"

// Kernels that work along a row, with AVX2. n is a multiple of 16 here; what is
// left of a row is done in Go.

// func sumSquaresAVX2(x pointer, n int, sums *lanes)
TEXT ·sumSquaresAVX2(SB), NOSPLIT, $0-24
	MOVQ x+0(FP), SI
	MOVQ n+8(FP), DX
	MOVQ sums+16(FP), DI
	VPXOR Y2, Y2, Y2
	VPXOR Y3, Y3, Y3
loop:
	VMOVUPS (SI), Y0
	VMOVUPS 32(SI), Y1
	VFMADD231PS Y0, Y0, Y2
	VFMADD231PS Y1, Y1, Y3
	ADDQ $64, SI
	SUBQ $16, DX
	JNZ  loop
	VMOVUPS Y2, (DI)
	VMOVUPS Y3, 32(DI)
	VZEROUPPER
	RET

// func addAVX2(x, y pointer, n int)
TEXT ·addAVX2(SB), NOSPLIT, $0-24
	MOVQ x+0(FP), DI
	MOVQ y+8(FP), SI
	MOVQ n+16(FP), DX
loop:
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
	VADDPS (SI), Y0, Y0
	VADDPS 32(SI), Y1, Y1
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	ADDQ $64, SI
	ADDQ $64, DI
	SUBQ $16, DX
	JNZ  loop
	VZEROUPPER
	RET

// func scaleAVX2(dst, x, w pointer, n int, factor float32)
//
// w may be nil.
TEXT ·scaleAVX2(SB), NOSPLIT, $0-36
	MOVQ dst+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ w+16(FP), R8
	MOVQ n+24(FP), DX
	VBROADCASTSS factor+32(FP), Y2
	TESTQ R8, R8
	JZ   plain
weighted:
	VMULPS (SI), Y2, Y0
	VMULPS 32(SI), Y2, Y1
	VMULPS (R8), Y0, Y0
	VMULPS 32(R8), Y1, Y1
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	ADDQ $64, SI
	ADDQ $64, R8
	ADDQ $64, DI
	SUBQ $16, DX
	JNZ  weighted
	VZEROUPPER
	RET
plain:
	VMULPS (SI), Y2, Y0
	VMULPS 32(SI), Y2, Y1
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	ADDQ $64, SI
	ADDQ $64, DI
	SUBQ $16, DX
	JNZ  plain
	VZEROUPPER
	RET

// func blendAVX2(x, y pointer, n int, keep, take float32)
TEXT ·blendAVX2(SB), NOSPLIT, $0-32
	MOVQ x+0(FP), DI
	MOVQ y+8(FP), SI
	MOVQ n+16(FP), DX
	VBROADCASTSS keep+24(FP), Y2
	VBROADCASTSS take+28(FP), Y3
loop:
	VMULPS (DI), Y2, Y0
	VMULPS (SI), Y3, Y1
	VADDPS Y1, Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ $32, DI
	ADDQ $32, SI
	SUBQ $8, DX
	JNZ  loop
	VZEROUPPER
	RET

// func rotateAVX2(x, y, cos, sin pointer, n int)
TEXT ·rotateAVX2(SB), NOSPLIT, $0-40
	MOVQ x+0(FP), DI
	MOVQ y+8(FP), SI
	MOVQ cos+16(FP), R8
	MOVQ sin+24(FP), R9
	MOVQ n+32(FP), DX
loop:
	VMOVUPS (DI), Y0
	VMOVUPS (SI), Y1
	VMOVUPS (R8), Y2
	VMOVUPS (R9), Y3
	VMULPS Y3, Y1, Y4
	VFMSUB231PS Y2, Y0, Y4     // x*cos - y*sin
	VMULPS Y2, Y1, Y5
	VFMADD231PS Y3, Y0, Y5     // x*sin + y*cos
	VMOVUPS Y4, (DI)
	VMOVUPS Y5, (SI)
	ADDQ $32, DI
	ADDQ $32, SI
	ADDQ $32, R8
	ADDQ $32, R9
	SUBQ $8, DX
	JNZ  loop
	VZEROUPPER
	RET

// func maxAVX2(x pointer, n int, tops *lanes)
TEXT ·maxAVX2(SB), NOSPLIT, $0-24
	MOVQ x+0(FP), SI
	MOVQ n+8(FP), DX
	MOVQ tops+16(FP), DI
	VMOVUPS (SI), Y0
	VMOVUPS 32(SI), Y1
	JMP  next
loop:
	VMAXPS (SI), Y0, Y0
	VMAXPS 32(SI), Y1, Y1
next:
	ADDQ $64, SI
	SUBQ $16, DX
	JNZ  loop
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VZEROUPPER
	RET

// The exponential is that of rows_avx512_amd64.s; 2^n is made as a bit pattern,
// so arguments stop at 88.8 too, where n is 128 and the pattern is infinity.
DATA exp2Of<>+0(SB)/4, $0xc2a00000  // -80
DATA exp2Of<>+4(SB)/4, $0x3fb8aa3b  // log2 e
DATA exp2Of<>+8(SB)/4, $0x3f317218  // ln 2
DATA exp2Of<>+12(SB)/4, $0xb102e308 // ln 2 minus the above
DATA exp2Of<>+16(SB)/4, $0x39500d01 // 1/7!
DATA exp2Of<>+20(SB)/4, $0x3ab60b61 // 1/6!
DATA exp2Of<>+24(SB)/4, $0x3c088889 // 1/5!
DATA exp2Of<>+28(SB)/4, $0x3d2aaaab // 1/4!
DATA exp2Of<>+32(SB)/4, $0x3e2aaaab // 1/3!
DATA exp2Of<>+36(SB)/4, $0x3f000000 // 1/2!
DATA exp2Of<>+40(SB)/4, $0x3f800000 // 1
DATA exp2Of<>+44(SB)/4, $0xc2280000 // -42
DATA exp2Of<>+48(SB)/4, $0x42b1999a // 88.8
DATA exp2Of<>+52(SB)/4, $127
GLOBL exp2Of<>(SB), RODATA|NOPTR, $56

#define TERM(i, x, p) VBROADCASTSS exp2Of<>+i(SB), Y15; VFMADD213PS Y15, x, p

// EXP sets p to e^x; x, n and Y15 are overwritten. A NaN stays one: VMAXPS and
// VMINPS return their first operand here then.
#define EXP(x, n, p) \
	VBROADCASTSS exp2Of<>+0(SB), Y15  \
	VMAXPS x, Y15, x                  \
	VBROADCASTSS exp2Of<>+48(SB), Y15 \
	VMINPS x, Y15, x                  \
	VBROADCASTSS exp2Of<>+4(SB), Y15  \
	VMULPS Y15, x, n                  \
	VROUNDPS $8, n, n                 \
	VBROADCASTSS exp2Of<>+8(SB), Y15  \
	VFNMADD231PS Y15, n, x            \
	VBROADCASTSS exp2Of<>+12(SB), Y15 \
	VFNMADD231PS Y15, n, x            \
	VBROADCASTSS exp2Of<>+16(SB), p   \
	TERM(20, x, p)                    \
	TERM(24, x, p)                    \
	TERM(28, x, p)                    \
	TERM(32, x, p)                    \
	TERM(36, x, p)                    \
	TERM(40, x, p)                    \
	TERM(40, x, p)                    \
	VCVTPS2DQ n, n                    \
	VPBROADCASTD exp2Of<>+52(SB), Y15 \
	VPADDD Y15, n, n                  \
	VPSLLD $23, n, n                  \
	VMULPS n, p, p

#define WEIGHT(off, sum) \
	VMOVUPS off(DI), Y0    \
	VSUBPS Y4, Y0, Y0      \
	VCMPPS $5, Y5, Y0, Y6  \
	EXP(Y0, Y1, Y2)        \
	VANDPS Y6, Y2, Y2      \
	VMOVUPS Y2, off(DI)    \
	VADDPS Y2, sum, sum

// func expAVX2(x pointer, n int, top float32, sums *lanes)
//
// What is below e^-42 becomes 0 (minWeight).
TEXT ·expAVX2(SB), NOSPLIT, $0-32
	MOVQ x+0(FP), DI
	MOVQ n+8(FP), DX
	VBROADCASTSS top+16(FP), Y4
	MOVQ sums+24(FP), SI
	VBROADCASTSS exp2Of<>+44(SB), Y5
	VMOVUPS (SI), Y7
	VMOVUPS 32(SI), Y8
loop:
	WEIGHT(0, Y7)
	WEIGHT(32, Y8)
	ADDQ $64, DI
	SUBQ $16, DX
	JNZ  loop
	VMOVUPS Y7, (SI)
	VMOVUPS Y8, 32(SI)
	VZEROUPPER
	RET

// func siluAVX2(dst, gate, up pointer, n int)
TEXT ·siluAVX2(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ gate+8(FP), SI
	MOVQ up+16(FP), R8
	MOVQ n+24(FP), DX
	VBROADCASTSS exp2Of<>+40(SB), Y5
loop:
	VMOVUPS (SI), Y3
	VPXOR Y0, Y0, Y0
	VSUBPS Y3, Y0, Y0
	EXP(Y0, Y1, Y2)
	VADDPS Y5, Y2, Y2
	VDIVPS Y2, Y3, Y3
	VMULPS (R8), Y3, Y3
	VMOVUPS Y3, (DI)
	ADDQ $32, DI
	ADDQ $32, SI
	ADDQ $32, R8
	SUBQ $8, DX
	JNZ  loop
	VZEROUPPER
	RET
