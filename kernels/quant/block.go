package quant

import (
	"encoding/binary"
	"fmt"

	"waybill/kernels"
)

// GroupElems is the number of elements that share a scale and a minimum in a
// Block: 16, the finest of all formats (Q6_K). Coarser formats repeat theirs.
const GroupElems = 16

// maxBlockElems is the largest block of any format (the K-quants).
const maxBlockElems = 256

// Block is one block of any quantized format taken apart. Element i has the
// value Scale[i/16]*Q[i] + Min[i/16]; Scale and Min are exact in float32 for
// every format but for the rounding of a subnormal product.
type Block struct {
	Q     [maxBlockElems]int8
	Scale [maxBlockElems / GroupElems]float32
	Min   [maxBlockElems / GroupElems]float32
}

// Read sets b from one block of type d. src holds d.BlockBytes() bytes.
func (b *Block) Read(d kernels.DType, src []byte) {
	switch d {
	case kernels.Q8_0:
		b.setBoth(half(src), 0)
		for i, v := range src[2:34] {
			b.Q[i] = int8(v)
		}
	case kernels.Q4_0:
		b.setBoth(half(src), 0)
		b.nibbles(src[2:18], 0, 8)
	case kernels.Q4_1:
		b.setBoth(half(src), half(src[2:]))
		b.nibbles(src[4:20], 0, 0)
	case kernels.Q5_0:
		b.setBoth(half(src), 0)
		b.nibbles(src[6:22], binary.LittleEndian.Uint32(src[2:]), 16)
	case kernels.Q5_1:
		b.setBoth(half(src), half(src[2:]))
		b.nibbles(src[8:24], binary.LittleEndian.Uint32(src[4:]), 0)
	case kernels.Q4_K:
		b.readQ4K(src)
	case kernels.Q5_K:
		b.readQ5K(src)
	case kernels.Q6_K:
		b.readQ6K(src)
	default:
		panic(fmt.Sprintf("BUG: quant: %v is not quantized", d))
	}
}

// setBoth sets the scale and the minimum of a block of 32.
func (b *Block) setBoth(scale, min float32) {
	b.Scale[0], b.Scale[1] = scale, scale
	b.Min[0], b.Min[1] = min, min
}

// nibbles sets Q from 16 bytes: the low nibbles are elements 0 to 15, the high
// ones 16 to 31. Bit i of fifth is the fifth bit of element i. zero is taken
// from each.
func (b *Block) nibbles(qs []byte, fifth uint32, zero int8) {
	for i, v := range qs {
		b.Q[i] = int8(v&15|byte(fifth>>i&1)<<4) - zero
		b.Q[i+16] = int8(v>>4|byte(fifth>>(i+16)&1)<<4) - zero
	}
}

// half reads a little-endian half.
func half(src []byte) float32 { return F16ToF32(binary.LittleEndian.Uint16(src)) }
