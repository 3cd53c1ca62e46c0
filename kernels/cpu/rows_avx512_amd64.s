#include "textflag.h"

// Kernels that work along a row of n float32. Tails are masked, so that no
// element is treated otherwise than its neighbours.

// TAIL(n, scratch) sets K1 to the lanes of a last register of n%16 elements.
#define TAIL(n, scratch) \
	MOVQ  n, CX          \
	ANDQ  $15, CX        \
	MOVL  $1, scratch    \
	SHLL  CX, scratch    \
	DECL  scratch        \
	KMOVW scratch, K1

// func sumSquaresAVX512(x pointer, n int, sums *lanes)
TEXT ·sumSquaresAVX512(SB), NOSPLIT, $0-24
	MOVQ x+0(FP), SI
	MOVQ n+8(FP), DX
	MOVQ sums+16(FP), DI
	TAIL(DX, AX)
	SHRQ $4, DX
	VPXORQ Z1, Z1, Z1
	TESTQ DX, DX
	JZ   tail
loop:
	VMOVUPS (SI), Z0
	VFMADD231PS Z0, Z0, Z1
	ADDQ $64, SI
	DECQ DX
	JNZ  loop
tail:
	VMOVUPS.Z (SI), K1, Z0
	VFMADD231PS Z0, Z0, Z1
	VMOVUPS Z1, (DI)
	VZEROUPPER
	RET

// func addAVX512(x, y pointer, n int)
TEXT ·addAVX512(SB), NOSPLIT, $0-24
	MOVQ x+0(FP), DI
	MOVQ y+8(FP), SI
	MOVQ n+16(FP), DX
	TAIL(DX, AX)
	SHRQ $4, DX
	JZ   tail
loop:
	VMOVUPS (DI), Z0
	VADDPS (SI), Z0, Z0
	VMOVUPS Z0, (DI)
	ADDQ $64, SI
	ADDQ $64, DI
	DECQ DX
	JNZ  loop
tail:
	VMOVUPS.Z (DI), K1, Z0
	VMOVUPS.Z (SI), K1, Z1
	VADDPS Z1, Z0, Z0
	VMOVUPS Z0, K1, (DI)
	VZEROUPPER
	RET

// func scaleAVX512(dst, x, w pointer, n int, factor float32)
//
// w may be nil.
TEXT ·scaleAVX512(SB), NOSPLIT, $0-36
	MOVQ dst+0(FP), DI
	MOVQ x+8(FP), SI
	MOVQ w+16(FP), R8
	MOVQ n+24(FP), DX
	VBROADCASTSS factor+32(FP), Z2
	TAIL(DX, AX)
	SHRQ $4, DX
	TESTQ R8, R8
	JZ   plain
	TESTQ DX, DX
	JZ   weightedTail
weighted:
	VMULPS (SI), Z2, Z0
	VMULPS (R8), Z0, Z0
	VMOVUPS Z0, (DI)
	ADDQ $64, SI
	ADDQ $64, R8
	ADDQ $64, DI
	DECQ DX
	JNZ  weighted
weightedTail:
	VMOVUPS.Z (SI), K1, Z0
	VMOVUPS.Z (R8), K1, Z1
	VMULPS Z0, Z2, Z0
	VMULPS Z1, Z0, Z0
	VMOVUPS Z0, K1, (DI)
	VZEROUPPER
	RET
plain:
	TESTQ DX, DX
	JZ   plainTail
plainLoop:
	VMULPS (SI), Z2, Z0
	VMOVUPS Z0, (DI)
	ADDQ $64, SI
	ADDQ $64, DI
	DECQ DX
	JNZ  plainLoop
plainTail:
	VMOVUPS.Z (SI), K1, Z0
	VMULPS Z0, Z2, Z0
	VMOVUPS Z0, K1, (DI)
	VZEROUPPER
	RET

// func blendAVX512(x, y pointer, n int, keep, take float32)
TEXT ·blendAVX512(SB), NOSPLIT, $0-32
	MOVQ x+0(FP), DI
	MOVQ y+8(FP), SI
	MOVQ n+16(FP), DX
	VBROADCASTSS keep+24(FP), Z2
	VBROADCASTSS take+28(FP), Z3
	TAIL(DX, AX)
	SHRQ $4, DX
	JZ   tail
loop:
	VMULPS (DI), Z2, Z0
	VMULPS (SI), Z3, Z1
	VADDPS Z1, Z0, Z0
	VMOVUPS Z0, (DI)
	ADDQ $64, DI
	ADDQ $64, SI
	DECQ DX
	JNZ  loop
tail:
	VMOVUPS.Z (DI), K1, Z0
	VMOVUPS.Z (SI), K1, Z1
	VMULPS Z2, Z0, Z0
	VMULPS Z3, Z1, Z1
	VADDPS Z1, Z0, Z0
	VMOVUPS Z0, K1, (DI)
	VZEROUPPER
	RET

// func rotateAVX512(x, y, cos, sin pointer, n int)
TEXT ·rotateAVX512(SB), NOSPLIT, $0-40
	MOVQ x+0(FP), DI
	MOVQ y+8(FP), SI
	MOVQ cos+16(FP), R8
	MOVQ sin+24(FP), R9
	MOVQ n+32(FP), DX
	TAIL(DX, AX)
	SHRQ $4, DX
	KXNORW K2, K2, K2
	TESTQ DX, DX
	JNZ  loop
	KMOVW K1, K2
	MOVQ $1, DX
loop:
	VMOVUPS.Z (DI), K2, Z0
	VMOVUPS.Z (SI), K2, Z1
	VMOVUPS.Z (R8), K2, Z2
	VMOVUPS.Z (R9), K2, Z3
	VMULPS Z3, Z1, Z4
	VFMSUB231PS Z2, Z0, Z4     // x*cos - y*sin
	VMULPS Z2, Z1, Z5
	VFMADD231PS Z3, Z0, Z5     // x*sin + y*cos
	VMOVUPS Z4, K2, (DI)
	VMOVUPS Z5, K2, (SI)
	ADDQ $64, DI
	ADDQ $64, SI
	ADDQ $64, R8
	ADDQ $64, R9
	DECQ DX
	JNZ  loop
	KMOVW K2, AX
	CMPL AX, $0xffff
	JNE  done
	KMOVW K1, K2
	KMOVW K1, AX
	MOVQ $1, DX
	TESTL AX, AX
	JNZ  loop
done:
	VZEROUPPER
	RET

// func maxAVX512(x pointer, n int) float32
//
// n is a positive multiple of 16.
TEXT ·maxAVX512(SB), NOSPLIT, $0-20
	MOVQ x+0(FP), SI
	MOVQ n+8(FP), DX
	VMOVUPS (SI), Z0
	JMP  next
loop:
	VMAXPS (SI), Z0, Z0
next:
	ADDQ $64, SI
	SUBQ $16, DX
	JNZ  loop
	VEXTRACTF64X4 $1, Z0, Y1
	VMAXPS Y1, Y0, Y0
	VEXTRACTF128 $1, Y0, X1
	VMAXPS X1, X0, X0
	VPSHUFD $0x4e, X0, X1
	VMAXPS X1, X0, X0
	VPSHUFD $0xb1, X0, X1
	VMAXPS X1, X0, X0
	VMOVSS X0, ret+16(FP)
	VZEROUPPER
	RET

// The exponential: x = n*ln 2 + r with |r| <= ln 2 / 2, e^r by its series up to
// r^7/7!. The first term left out is below 6e-9 of the result, so rounding
// decides: at most 2 ulp (a test measures it). Arguments below -80 count as -80,
// since subnormal results are slow: one is added to e^x, or it is dropped.
DATA expOf<>+0(SB)/4, $0xc2a00000  // -80
DATA expOf<>+4(SB)/4, $0x3fb8aa3b  // log2 e
DATA expOf<>+8(SB)/4, $0x3f317218  // ln 2
DATA expOf<>+12(SB)/4, $0xb102e308 // ln 2 minus the above
DATA expOf<>+16(SB)/4, $0x39500d01 // 1/7!
DATA expOf<>+20(SB)/4, $0x3ab60b61 // 1/6!
DATA expOf<>+24(SB)/4, $0x3c088889 // 1/5!
DATA expOf<>+28(SB)/4, $0x3d2aaaab // 1/4!
DATA expOf<>+32(SB)/4, $0x3e2aaaab // 1/3!
DATA expOf<>+36(SB)/4, $0x3f000000 // 1/2!
DATA expOf<>+40(SB)/4, $0x3f800000 // 1
DATA expOf<>+44(SB)/4, $0xc2280000 // -42
GLOBL expOf<>(SB), RODATA|NOPTR, $48

// EXPCONST loads what EXP needs often into Z16-Z18.
#define EXPCONST \
	VBROADCASTSS expOf<>+0(SB), Z16 \
	VBROADCASTSS expOf<>+8(SB), Z17 \
	VBROADCASTSS expOf<>+12(SB), Z18

// EXP(x, n, p) sets p to e^x; x and n are overwritten. A NaN stays one: VMAXPS
// returns its first operand here then.
#define EXP(x, n, p) \
	VMAXPS x, Z16, x                        \
	VMULPS.BCST expOf<>+4(SB), x, n         \
	VRNDSCALEPS $8, n, n                    \
	VFNMADD231PS Z17, n, x                  \
	VFNMADD231PS Z18, n, x                  \
	VBROADCASTSS expOf<>+16(SB), p          \
	VFMADD213PS.BCST expOf<>+20(SB), x, p   \
	VFMADD213PS.BCST expOf<>+24(SB), x, p   \
	VFMADD213PS.BCST expOf<>+28(SB), x, p   \
	VFMADD213PS.BCST expOf<>+32(SB), x, p   \
	VFMADD213PS.BCST expOf<>+36(SB), x, p   \
	VFMADD213PS.BCST expOf<>+40(SB), x, p   \
	VFMADD213PS.BCST expOf<>+40(SB), x, p   \
	VSCALEFPS n, p, p

// func expAVX512(x pointer, n int, top float32, sums *lanes)
//
// n is a multiple of 16. What is below e^-42 becomes 0 (minWeight).
TEXT ·expAVX512(SB), NOSPLIT, $0-32
	MOVQ x+0(FP), DI
	MOVQ n+8(FP), DX
	VBROADCASTSS top+16(FP), Z4
	MOVQ sums+24(FP), SI
	EXPCONST
	VBROADCASTSS expOf<>+44(SB), Z5
	VMOVUPS (SI), Z3
	TESTQ DX, DX
	JZ   done
loop:
	VMOVUPS (DI), Z0
	VSUBPS Z4, Z0, Z0
	VCMPPS $5, Z5, Z0, K1      // not less than, or NaN
	EXP(Z0, Z1, Z2)
	VMOVUPS.Z Z2, K1, Z2
	VMOVUPS Z2, (DI)
	VADDPS Z2, Z3, Z3
	ADDQ $64, DI
	SUBQ $16, DX
	JNZ  loop
	VMOVUPS Z3, (SI)
done:
	VZEROUPPER
	RET

// func siluAVX512(dst, gate, up pointer, n int)
TEXT ·siluAVX512(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ gate+8(FP), SI
	MOVQ up+16(FP), R8
	MOVQ n+24(FP), DX
	EXPCONST
	VBROADCASTSS expOf<>+40(SB), Z19
	TAIL(DX, AX)
	SHRQ $4, DX
	KXNORW K2, K2, K2
	TESTQ DX, DX
	JNZ  loop
	KMOVW K1, K2
	MOVQ $1, DX
loop:
	VMOVUPS.Z (SI), K2, Z3
	VMOVUPS.Z (R8), K2, Z4
	VPXORQ Z0, Z0, Z0
	VSUBPS Z3, Z0, Z0
	EXP(Z0, Z1, Z2)
	VADDPS Z19, Z2, Z2
	VDIVPS Z2, Z3, Z3
	VMULPS Z4, Z3, Z3
	VMOVUPS Z3, K2, (DI)
	ADDQ $64, DI
	ADDQ $64, SI
	ADDQ $64, R8
	DECQ DX
	JNZ  loop
	KMOVW K2, AX
	CMPL AX, $0xffff
	JNE  done
	KMOVW K1, K2
	KMOVW K1, AX
	MOVQ $1, DX
	TESTL AX, AX
	JNZ  loop
done:
	VZEROUPPER
	RET

// func gateAVX512(x pointer, rows, n int)
//
// The arithmetic is siluAVX512's.
TEXT ·gateAVX512(SB), NOSPLIT, $0-24
	MOVQ x+0(FP), DI
	MOVQ rows+8(FP), CX
	MOVQ n+16(FP), R8
	SHLQ $2, R8                // bytes between gate and up
	EXPCONST
	VBROADCASTSS expOf<>+40(SB), Z19
row:
	MOVQ R8, DX
loop:
	VMOVUPS (DI), Z3
	VPXORQ Z0, Z0, Z0
	VSUBPS Z3, Z0, Z0
	EXP(Z0, Z1, Z2)
	VADDPS Z19, Z2, Z2
	VDIVPS Z2, Z3, Z3
	VMULPS (DI)(R8*1), Z3, Z3
	VMOVUPS Z3, (DI)
	ADDQ $64, DI
	SUBQ $64, DX
	JNZ  loop
	ADDQ R8, DI
	DECQ CX
	JNZ  row
	VZEROUPPER
	RET
