#include "textflag.h"

// func quantizeRowAVX512(dst, meta, x pointer, height, blocks int)
//
// Rounds one row of activations to int8 into its place in a panel; dst and meta are the
// addresses of its quants and metadata in the first block (panel.go).
// The arithmetic is int8Scale's.
TEXT ·quantizeRowAVX512(SB), NOSPLIT, $0-40
	MOVQ meta+8(FP), R9
	MOVQ dst+0(FP), DI
	MOVQ x+16(FP), SI
	MOVQ height+24(FP), DX
	MOVQ blocks+32(FP), CX
	MOVQ DX, R10
	SHLQ $2, R10               // bytes between the fields of the metadata
	IMULQ $52, DX              // bytes of a block of the panel
	MOVL $0x7fffffff, AX
	VPBROADCASTD AX, Z8
	MOVL $0x01010101, AX
	VPBROADCASTD AX, Y9
	MOVL $0x42fe0000, AX       // 127
	VMOVD AX, X10
loop:
	VMOVUPS (SI), Z0
	VMOVUPS 64(SI), Z1
	VPANDD Z8, Z0, Z2
	VPANDD Z8, Z1, Z3
	VPMAXUD Z2, Z3, Z2
	VEXTRACTI64X4 $1, Z2, Y3
	VPMAXUD Y3, Y2, Y2
	VEXTRACTI128 $1, Y2, X3
	VPMAXUD X3, X2, X2
	VPSHUFD $0x4e, X2, X3
	VPMAXUD X3, X2, X2
	VPSHUFD $0xb1, X2, X3
	VPMAXUD X3, X2, X2
	VMOVD X2, AX
	// AX: the bits of the largest magnitude. Infinity and NaN are above all
	// numbers; minInt8Max is the bound to what counts as zero.
	CMPL AX, $0x7f800000
	JAE  notfinite
	CMPL AX, $0x0d800000
	JB   zero
	VDIVSS X10, X2, X4         // scale = max/127
	VDIVSS X2, X10, X5         // inverse = 127/max
scaled:
	VBROADCASTSS X5, Z5
	VMULPS Z5, Z0, Z0
	VMULPS Z5, Z1, Z1
	VCVTPS2DQ Z0, Z0
	VCVTPS2DQ Z1, Z1
	VPMOVSDB Z0, X0
	VPMOVSDB Z1, X1
	VINSERTI128 $1, X1, Y0, Y0
	VMOVDQU Y0, (DI)
	VPXOR Y2, Y2, Y2
	VPDPBUSD Y0, Y9, Y2        // sums of four
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
