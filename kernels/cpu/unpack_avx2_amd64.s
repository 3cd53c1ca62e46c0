#include "textflag.h"

// Unpacking of tiles, used by the AVX-512 level too. Chunk c of a block of
// nibbles is the groups c and c+4, in two halves h of 32 bytes.
//
// DI dst   SI tile   CX blocks   Y8 lift   Y9 the low four bits of every byte

#define ARGS \
	MOVQ dst+0(FP), DI    \
	MOVQ tile+8(FP), SI   \
	MOVQ blocks+16(FP), CX \
	MOVQ lift+24(FP), AX  \
	VMOVD AX, X8          \
	VPBROADCASTB X8, Y8   \
	MOVL $15, AX          \
	VMOVD AX, X9          \
	VPBROADCASTB X9, Y9

#define LOAD(c, h) \
	VMOVDQU (64*c+32*h)(SI), Y0 \
	VPSRLW $4, Y0, Y1           \
	VPAND Y9, Y0, Y0            \
	VPAND Y9, Y1, Y1

#define STORE(c, h) \
	VPADDB Y8, Y0, Y0               \
	VPADDB Y8, Y1, Y1               \
	VMOVDQU Y0, (64*c+32*h)(DI)     \
	VMOVDQU Y1, (64*c+32*h+256)(DI)

// KSCALES multiplies 16 halves of every super block, under the sign bit SIGN,
// with PER rows of 16 bytes each.
#define KSCALES(WIDEN, PER, SIGN) \
	MOVQ dst+0(FP), DI      \
	MOVQ halves+8(FP), SI   \
	MOVQ bytes+16(FP), DX   \
	MOVQ supers+24(FP), CX  \
	MOVL $SIGN, AX          \
	VMOVD AX, X4            \
	VPBROADCASTD X4, Y4     \
super:                          \
	VCVTPH2PS (SI), Y0      \
	VCVTPH2PS 16(SI), Y1    \
	VPXOR Y4, Y0, Y0        \
	VPXOR Y4, Y1, Y1        \
	MOVQ $PER, R8           \
row:                            \
	WIDEN (DX), Y2          \
	WIDEN 8(DX), Y3         \
	VCVTDQ2PS Y2, Y2        \
	VCVTDQ2PS Y3, Y3        \
	VMULPS Y0, Y2, Y2       \
	VMULPS Y1, Y3, Y3       \
	VMOVUPS Y2, (DI)        \
	VMOVUPS Y3, 32(DI)      \
	ADDQ $16, DX            \
	ADDQ $64, DI            \
	DECQ R8                 \
	JNZ  row                \
	ADDQ $32, SI            \
	DECQ CX                 \
	JNZ  super              \
	VZEROUPPER              \
	RET

// func nibblesAVX2(dst, tile pointer, blocks int, lift int)
//
// Unpacks quants of four bits and adds lift to each.
TEXT ·nibblesAVX2(SB), NOSPLIT, $0-32
	ARGS
loop:
	LOAD(0, 0)
	STORE(0, 0)
	LOAD(0, 1)
	STORE(0, 1)
	LOAD(1, 0)
	STORE(1, 0)
	LOAD(1, 1)
	STORE(1, 1)
	LOAD(2, 0)
	STORE(2, 0)
	LOAD(2, 1)
	STORE(2, 1)
	LOAD(3, 0)
	STORE(3, 0)
	LOAD(3, 1)
	STORE(3, 1)
	ADDQ $256, SI
	ADDQ $512, DI
	DECQ CX
	JNZ  loop
	VZEROUPPER
	RET

DATA bytesOf<>+0(SB)/8, $0x0000000000000000
DATA bytesOf<>+8(SB)/8, $0x0101010101010101
DATA bytesOf<>+16(SB)/8, $0x0202020202020202
DATA bytesOf<>+24(SB)/8, $0x0303030303030303
DATA bytesOf<>+32(SB)/8, $0x8040201008040201
GLOBL bytesOf<>(SB), RODATA|NOPTR, $40

// FIFTH adds 16 to the bytes of Y whose bit among the 32 at off(SI) is set.
#define FIFTH(off, Y) \
	VPBROADCASTD off(SI), Y2 \
	VPSHUFB Y10, Y2, Y2      \
	VPAND Y11, Y2, Y2        \
	VPCMPEQB Y11, Y2, Y2     \
	VPAND Y12, Y2, Y2        \
	VPOR Y2, Y, Y

#define CHUNK5(c, h) \
	LOAD(c, h)                  \
	FIFTH((256+8*c+4*h), Y0)    \
	FIFTH((256+32+8*c+4*h), Y1) \
	STORE(c, h)

// func fiveBitsAVX2(dst, tile pointer, blocks int, lift int)
//
// Unpacks quants of five bits.
TEXT ·fiveBitsAVX2(SB), NOSPLIT, $0-32
	ARGS
	VMOVDQU bytesOf<>(SB), Y10
	VPBROADCASTQ bytesOf<>+32(SB), Y11
	MOVL $16, AX
	VMOVD AX, X12
	VPBROADCASTB X12, Y12
loop:
	CHUNK5(0, 0)
	CHUNK5(0, 1)
	CHUNK5(1, 0)
	CHUNK5(1, 1)
	CHUNK5(2, 0)
	CHUNK5(2, 1)
	CHUNK5(3, 0)
	CHUNK5(3, 1)
	ADDQ $320, SI
	ADDQ $512, DI
	DECQ CX
	JNZ  loop
	VZEROUPPER
	RET

// TOPS takes two bits of every byte of the planes to bits 4 and 5 by SHIFT.
#define LEFT4(Y) VPSLLW $4, Y, Y
#define LEFT2(Y) VPSLLW $2, Y, Y
#define STAY(Y)
#define RIGHT2(Y) VPSRLW $2, Y, Y
#define CHUNK6(c, h, SHIFT) \
	LOAD(c, h)                   \
	VMOVDQU (256+32*h)(SI), Y2   \
	VMOVDQU (320+32*h)(SI), Y3   \
	SHIFT(Y2)                    \
	SHIFT(Y3)                    \
	VPAND Y10, Y2, Y2            \
	VPAND Y10, Y3, Y3            \
	VPOR Y2, Y0, Y0              \
	VPOR Y3, Y1, Y1              \
	STORE(c, h)

// func sixBitsAVX2(dst, tile pointer, blocks int, lift int)
//
// Unpacks quants of six bits.
TEXT ·sixBitsAVX2(SB), NOSPLIT, $0-32
	ARGS
	MOVL $0x30, AX
	VMOVD AX, X10
	VPBROADCASTB X10, Y10
loop:
	CHUNK6(0, 0, LEFT4)
	CHUNK6(0, 1, LEFT4)
	CHUNK6(1, 0, LEFT2)
	CHUNK6(1, 1, LEFT2)
	CHUNK6(2, 0, STAY)
	CHUNK6(2, 1, STAY)
	CHUNK6(3, 0, RIGHT2)
	CHUNK6(3, 1, RIGHT2)
	ADDQ $384, SI
	ADDQ $512, DI
	DECQ CX
	JNZ  loop
	VZEROUPPER
	RET

// func halvesAVX2(dst, src pointer, n int)
//
// Widens n halves, a multiple of 8.
TEXT ·halvesAVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
loop:
	VCVTPH2PS (SI), Y0
	VMOVUPS Y0, (DI)
	ADDQ $16, SI
	ADDQ $32, DI
	SUBQ $8, CX
	JNZ  loop
	VZEROUPPER
	RET

// func kScalesAVX2(dst, halves, bytes pointer, supers int)
TEXT ·kScalesAVX2(SB), NOSPLIT, $0-32
	KSCALES(VPMOVZXBD, 8, 0)

// func kMinsAVX2(dst, halves, bytes pointer, supers int)
TEXT ·kMinsAVX2(SB), NOSPLIT, $0-32
	KSCALES(VPMOVZXBD, 8, 0x80000000)

// func k6ScalesAVX2(dst, halves, bytes pointer, supers int)
TEXT ·k6ScalesAVX2(SB), NOSPLIT, $0-32
	KSCALES(VPMOVSXBD, 16, 0)
