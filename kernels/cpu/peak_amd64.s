#include "textflag.h"

// The rates that int8 products cannot exceed, for BenchmarkOps: products of
// registers, without memory, sums or scales.

// func dotPeakAVX512(rounds int)
//
// 16 independent VPDPBUSD a round: 2,048 multiplications and additions.
TEXT ·dotPeakAVX512(SB), NOSPLIT, $0-8
	MOVQ rounds+0(FP), CX
	VPXORQ Z30, Z30, Z30
	VPXORQ Z31, Z31, Z31
dots:
	VPDPBUSD Z30, Z31, Z0
	VPDPBUSD Z30, Z31, Z1
	VPDPBUSD Z30, Z31, Z2
	VPDPBUSD Z30, Z31, Z3
	VPDPBUSD Z30, Z31, Z4
	VPDPBUSD Z30, Z31, Z5
	VPDPBUSD Z30, Z31, Z6
	VPDPBUSD Z30, Z31, Z7
	VPDPBUSD Z30, Z31, Z8
	VPDPBUSD Z30, Z31, Z9
	VPDPBUSD Z30, Z31, Z10
	VPDPBUSD Z30, Z31, Z11
	VPDPBUSD Z30, Z31, Z12
	VPDPBUSD Z30, Z31, Z13
	VPDPBUSD Z30, Z31, Z14
	VPDPBUSD Z30, Z31, Z15
	DECQ CX
	JNZ  dots
	VZEROUPPER
	RET

// func tilePeakAMX(config pointer, rounds int)
//
// Four independent TDPBUSD on full tiles a round: 131,072 multiplications and
// additions.
TEXT ·tilePeakAMX(SB), NOSPLIT, $0-16
	MOVQ config+0(FP), R11
	MOVQ rounds+8(FP), CX
	BYTE $0xc4; BYTE $0xc2; BYTE $0x78; BYTE $0x49; BYTE $0x03 // LDTILECFG (R11)
tiles:
	BYTE $0xc4; BYTE $0xe2; BYTE $0x4a; BYTE $0x5e; BYTE $0xc5 // TDPBSUD TMM6, TMM5, TMM0
	BYTE $0xc4; BYTE $0xe2; BYTE $0x4a; BYTE $0x5e; BYTE $0xcd // to TMM1
	BYTE $0xc4; BYTE $0xe2; BYTE $0x4a; BYTE $0x5e; BYTE $0xd5 // to TMM2
	BYTE $0xc4; BYTE $0xe2; BYTE $0x4a; BYTE $0x5e; BYTE $0xdd // to TMM3
	DECQ CX
	JNZ  tiles
	BYTE $0xc4; BYTE $0xe2; BYTE $0x78; BYTE $0x49; BYTE $0xc0 // TILERELEASE
	RET

// func readAVX512(from pointer, n int)
//
// Reads n bytes, a multiple of 512, with as many loads as possible on the way.
TEXT ·readAVX512(SB), NOSPLIT, $0-16
	MOVQ from+0(FP), SI
	MOVQ n+8(FP), CX
read:
	PREFETCHT0 4096(SI)
	PREFETCHT0 4160(SI)
	PREFETCHT0 4224(SI)
	PREFETCHT0 4288(SI)
	PREFETCHT0 4352(SI)
	PREFETCHT0 4416(SI)
	PREFETCHT0 4480(SI)
	PREFETCHT0 4544(SI)
	VMOVDQU64 (SI), Z0
	VMOVDQU64 64(SI), Z1
	VMOVDQU64 128(SI), Z2
	VMOVDQU64 192(SI), Z3
	VMOVDQU64 256(SI), Z4
	VMOVDQU64 320(SI), Z5
	VMOVDQU64 384(SI), Z6
	VMOVDQU64 448(SI), Z7
	ADDQ $512, SI
	SUBQ $512, CX
	JNZ  read
	VZEROUPPER
	RET
