package cpu

import (
	"encoding/binary"
	"math"

	"waybill/kernels/quant"
)

// unpacked is one tile's scales in float32: what the matrix kernels read beside
// its quants.
type unpacked struct {
	// scales is [blocks][16], or [blocks][2][16] for formats with a scale for
	// every 16 elements.
	scales []float32
	// mins is [blocks][16] of affine formats.
	mins []float32
}

// unpackedFloats returns the float32 of scales and minimums that a tile needs.
func unpackedFloats(cols int) int { return 3 * cols / quantElems * tileRows }

// lift returns what is added to a stored quant to unpack it.
func (f format) lift() int {
	if formats[f].affine {
		return 0
	}
	return 128 - formats[f].zero
}

// unpackQuants sets dst to the quants of a tile. It is the meaning of the faster
// ones.
func (f format) unpackQuants(dst, tile []byte, blocks int) {
	lift := byte(f.lift())
	for b := range blocks {
		src, to := tile[b*f.quantBytes():], dst[b*quantTile:][:quantTile]
		for i := range to {
			to[i] = f.quant(src, i%64/4, i/64*4+i%4) + lift
		}
	}
}

// unpackScales sets u's scales and minimums to those of count blocks from block
// from on, given the scale area of a tile of blocks. Of K-quants both are
// multiples of a super block.
func (f format) unpackScales(k *kernelSet, u *unpacked, area []byte, blocks, from, count int) {
	n, supers := blocks*tileRows, blocks/superBlocks*tileRows
	at, super := from*tileRows, from/superBlocks*tileRows
	scales, mins := u.scales[:count*tileRows], u.mins[:min(len(u.mins), count*tileRows)]
	switch formats[f].scales {
	case scaleHalf:
		k.halves(scales, area[2*at:])
	case scaleMin:
		k.halves(scales, area[2*at:])
		k.halves(mins, area[2*(n+at):])
	case scaleK:
		bytes := area[4*supers+at:]
		k.kScales(scales, area[2*super:], bytes, scaleBytes)
		k.kScales(mins, area[2*(supers+super):], bytes[n:], minimumBytes)
	case scale6K:
		k.kScales(u.scales[:2*count*tileRows], area[2*super:], area[2*supers+2*at:], signedBytes)
	}
}

// byteKind tells the three uses of bytes that a super block's halves multiply.
type byteKind uint8

const (
	// scaleBytes are unsigned, 16 for each block.
	scaleBytes byteKind = iota
	// minimumBytes are scaleBytes whose product is negated.
	minimumBytes
	// signedBytes are signed, 32 for each block.
	signedBytes
)

// kScalesGeneric sets dst to the products of bytes and their super block's halves.
func kScalesGeneric(dst []float32, halves, bytes []byte, kind byteKind) {
	per := superBlocks * tileRows
	if kind == signedBytes {
		per *= 2
	}
	for i := range dst {
		d := half(halves, i/per*tileRows+i%tileRows)
		switch kind {
		case scaleBytes:
			dst[i] = d * float32(bytes[i])
		case minimumBytes:
			dst[i] = -d * float32(bytes[i])
		case signedBytes:
			dst[i] = d * float32(int8(bytes[i]))
		}
	}
}

// halvesGeneric widens halves.
func halvesGeneric(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = half(src, i)
	}
}

// unpackRow sets dst [cols] to the values of lane r of a tile.
func (f format) unpackRow(dst []float32, tile []byte, r int) {
	switch f {
	case tileF32:
		for k := range dst {
			dst[k] = math.Float32frombits(binary.LittleEndian.Uint32(tile[4*(k*tileRows+r):]))
		}
		return
	case tileF16:
		for k := range dst {
			dst[k] = half(tile, k*tileRows+r)
		}
		return
	case tileBF16:
		for k := range dst {
			dst[k] = bfloat(tile, k*tileRows+r)
		}
		return
	}
	info := &formats[f]
	blocks := len(dst) / quantElems
	area := tile[blocks*f.quantBytes():]
	for b := range blocks {
		src := tile[b*f.quantBytes():]
		for k := range quantElems {
			q := int(f.quant(src, r, k)) - info.zero
			scale, min := f.rowScale(area, r, b, k, blocks)
			dst[b*quantElems+k] = float32(scale*float32(q)) + min
		}
	}
}

// quant returns element k of row r of a block, as it is stored.
func (f format) quant(block []byte, r, k int) byte {
	lane, g := 4*r+k%4, k/4
	if formats[f].bits == 8 {
		return block[64*g+lane]
	}
	u := block[64*(g%4)+lane] >> (g / 4 * 4) & 15
	switch formats[f].bits {
	case 5:
		u |= block[256+8*g+lane/8] >> (lane % 8) & 1 << 4
	case 6:
		u |= block[256+g/4*64+lane] >> (2 * (g % 4)) & 3 << 4
	}
	return u
}

// rowScale returns scale and minimum of element k of row r in block b.
func (f format) rowScale(area []byte, r, b, k, blocks int) (scale, min float32) {
	at, n := b*tileRows+r, blocks*tileRows
	super, supers := b/superBlocks*tileRows+r, blocks/superBlocks*tileRows
	switch formats[f].scales {
	case scaleMin:
		return half(area, at), half(area, n+at)
	case scaleK:
		s, m := area[4*supers+at], area[4*supers+n+at]
		return half(area, super) * float32(s), -(half(area, supers+super) * float32(m))
	case scale6K:
		s := int8(area[2*supers+(2*b+k/16)*tileRows+r])
		return half(area, super) * float32(s), 0
	}
	return half(area, at), 0
}

// half returns element i of an array of halves.
func half(b []byte, i int) float32 { return quant.F16ToF32(binary.LittleEndian.Uint16(b[2*i:])) }

// bfloat returns element i of an array of bfloat16.
func bfloat(b []byte, i int) float32 {
	return quant.BF16ToF32(binary.LittleEndian.Uint16(b[2*i:]))
}
