#include "textflag.h"

// func narrowF16AVX2(dst, src pointer, n int)
//
// Rounds n float32, a multiple of 8, to halves, to nearest even.
TEXT ·narrowF16AVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
loop:
	VMOVUPS (SI), Y0
	VCVTPS2PH $0, Y0, X0
	VMOVDQU X0, (DI)
	ADDQ $32, SI
	ADDQ $16, DI
	SUBQ $8, CX
	JNZ  loop
	VZEROUPPER
	RET

// func narrowBF16AVX2(dst, src pointer, n int)
//
// Rounds n float32, a multiple of 8, to bfloat16: half a unit is added, less one
// if the last bit that stays is even; a NaN gets its quiet bit instead.
TEXT ·narrowBF16AVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	MOVL $0x7fff, AX
	VMOVD AX, X8
	VPBROADCASTD X8, Y8
	MOVL $1, AX
	VMOVD AX, X9
	VPBROADCASTD X9, Y9
	MOVL $0x40, AX
	VMOVD AX, X10
	VPBROADCASTD X10, Y10
loop:
	VMOVUPS (SI), Y0
	VPSRLD $16, Y0, Y1
	VPAND Y9, Y1, Y2
	VPADDD Y8, Y0, Y3
	VPADDD Y2, Y3, Y3
	VPSRLD $16, Y3, Y3
	VPOR Y10, Y1, Y1
	VCMPPS $3, Y0, Y0, Y4      // not a number
	VPBLENDVB Y4, Y1, Y3, Y3
	VEXTRACTI128 $1, Y3, X4
	VPACKUSDW X4, X3, X3
	VMOVDQU X3, (DI)
	ADDQ $32, SI
	ADDQ $16, DI
	SUBQ $8, CX
	JNZ  loop
	VZEROUPPER
	RET
