#include "textflag.h"

// func nibblesAVX512(dst, tile pointer, blocks int, lift int)
//
// Unpacks the quants of a tile of four bits to bytes and adds lift to each.
TEXT ·nibblesAVX512(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ tile+8(FP), SI
	MOVQ blocks+16(FP), CX
	MOVQ lift+24(FP), AX
	VPBROADCASTB AX, Z8
	MOVL $15, AX
	VPBROADCASTB AX, Z9

#define CHUNK(c) \
	VMOVDQU64 (64*c)(SI), Z0       \
	VPSRLW    $4, Z0, Z1           \
	VPANDQ    Z9, Z0, Z0           \
	VPANDQ    Z9, Z1, Z1           \
	VPADDB    Z8, Z0, Z0           \
	VPADDB    Z8, Z1, Z1           \
	VMOVDQU64 Z0, (64*c)(DI)       \
	VMOVDQU64 Z1, (64*c+256)(DI)

// A tile ends before the hardware's own prefetchers have found it.
loop:
	PREFETCHT0 4096(SI)
	PREFETCHT0 4160(SI)
	PREFETCHT0 4224(SI)
	PREFETCHT0 4288(SI)
	CHUNK(0)
	CHUNK(1)
	CHUNK(2)
	CHUNK(3)
	ADDQ $256, SI
	ADDQ $512, DI
	DECQ CX
	JNZ  loop
	VZEROUPPER
	RET

// func halvesAVX512(dst, src pointer, n int)
//
// Widens n halves, a multiple of 16.
TEXT ·halvesAVX512(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
loop:
	VCVTPH2PS (SI), Z0
	VMOVUPS Z0, (DI)
	ADDQ $32, SI
	ADDQ $64, DI
	SUBQ $16, CX
	JNZ  loop
	VZEROUPPER
	RET
