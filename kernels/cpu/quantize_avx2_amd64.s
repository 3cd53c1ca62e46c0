#include "textflag.h"

DATA packOrder<>+0(SB)/8, $0x0000000400000000
DATA packOrder<>+8(SB)/8, $0x0000000500000001
DATA packOrder<>+16(SB)/8, $0x0000000600000002
DATA packOrder<>+24(SB)/8, $0x0000000700000003
GLOBL packOrder<>(SB), RODATA|NOPTR, $32

// func quantizeRowAVX2(dst, meta, x pointer, height, blocks int)
//
// Rounds one row of activations to int8 into its place in a panel; dst and meta
// are the addresses of its quants and metadata in the first block (panel.go).
// The arithmetic is int8Scale's.
TEXT ·quantizeRowAVX2(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ meta+8(FP), R9
	MOVQ x+16(FP), SI
	MOVQ height+24(FP), DX
	MOVQ blocks+32(FP), CX
	MOVQ DX, R10
	SHLQ $2, R10               // bytes between the fields of the metadata
	IMULQ $52, DX              // bytes of a block of the panel
	MOVL $0x7fffffff, AX
	VMOVD AX, X8
	VPBROADCASTD X8, Y8
	MOVL $0x01010101, AX
	VMOVD AX, X9
	VPBROADCASTD X9, Y9
	MOVL $0x00010001, AX
	VMOVD AX, X12
	VPBROADCASTD X12, Y12
	VMOVDQU packOrder<>(SB), Y13
	MOVL $0x42fe0000, AX       // 127
	VMOVD AX, X10
loop:
	VMOVUPS (SI), Y0
	VMOVUPS 32(SI), Y1
	VMOVUPS 64(SI), Y2
	VMOVUPS 96(SI), Y3
	VPAND Y8, Y0, Y4
	VPAND Y8, Y1, Y5
	VPMAXUD Y4, Y5, Y4
	VPAND Y8, Y2, Y5
	VPMAXUD Y4, Y5, Y4
	VPAND Y8, Y3, Y5
	VPMAXUD Y4, Y5, Y4
	VEXTRACTI128 $1, Y4, X5
	VPMAXUD X5, X4, X4
	VPSHUFD $0x4e, X4, X5
	VPMAXUD X5, X4, X4
	VPSHUFD $0xb1, X4, X5
	VPMAXUD X5, X4, X4
	VMOVD X4, AX
	// AX: the bits of the largest magnitude. Infinity and NaN are above all
	// numbers; minInt8Max is the bound to what counts as zero.
	CMPL AX, $0x7f800000
	JAE  notfinite
	CMPL AX, $0x0d800000
	JB   zero
	VDIVSS X4, X10, X5         // inverse = 127/max
	VDIVSS X10, X4, X4         // scale = max/127
scaled:
	VBROADCASTSS X5, Y5
	VMULPS Y5, Y0, Y0
	VMULPS Y5, Y1, Y1
	VMULPS Y5, Y2, Y2
	VMULPS Y5, Y3, Y3
	VCVTPS2DQ Y0, Y0
	VCVTPS2DQ Y1, Y1
	VCVTPS2DQ Y2, Y2
	VCVTPS2DQ Y3, Y3
	VPACKSSDW Y1, Y0, Y0
	VPACKSSDW Y3, Y2, Y2
	VPACKSSWB Y2, Y0, Y0
	VPERMD Y0, Y13, Y0
	VMOVDQU Y0, (DI)
	VPMADDUBSW Y0, Y9, Y2      // sums of two
	VPMADDWD Y12, Y2, Y2       // sums of four
	VPHADDD Y2, Y2, Y2
	VPHADDD Y2, Y2, Y2         // lanes 0 and 4: sums of 16
	VEXTRACTI128 $1, Y2, X3
	VPADDD X3, X2, X6
	VCVTDQ2PS X6, X7
	VMULSS X4, X7, X7
	VPSLLD $7, X2, X2
	VPSLLD $7, X3, X3
	VPSLLD $7, X6, X6
	VPXOR X11, X11, X11
	VPSUBD X2, X11, X2
	VPSUBD X3, X11, X3
	VPSUBD X6, X11, X6
	// The fields lie R10 bytes apart: scale, scale times sum, -128 times the sum,
	// and the same of either half.
	LEAQ (R9)(R10*2), R11
	VMOVSS X4, (R9)
	VMOVSS X7, (R9)(R10*1)
	VMOVSS X6, (R11)
	VMOVSS X2, (R11)(R10*1)
	VMOVSS X3, (R11)(R10*2)
	ADDQ $128, SI
	ADDQ DX, DI
	ADDQ DX, R9
	DECQ CX
	JNZ  loop
	VZEROUPPER
	RET

// A block of zeros: scale and inverse are 0.
zero:
	VPXOR X4, X4, X4
	VPXOR X5, X5, X5
	JMP scaled

// An infinity or a NaN: the scale is NaN and spoils every product of the row.
notfinite:
	MOVL $0x7fc00000, AX
	VMOVD AX, X4
	VPXOR X5, X5, X5
	JMP scaled
