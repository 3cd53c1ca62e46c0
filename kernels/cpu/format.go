package cpu

import (
	"encoding/binary"
	"math"

	"waybill/kernels"
	"waybill/kernels/quant"
)

// A packed weight is cut into tiles of 16 rows, because a 512-bit register holds
// 16 sums: lane r of every kernel is row r of a tile, so a row's sum is built in
// the order of K by one lane whatever else is computed beside it.
//
// A tile of a quantized format is an area of quants followed by an area of
// scales, both in blocks of 32 elements along K. Quants are unsigned: the VNNI
// instruction multiplies unsigned by signed bytes. In a block, byte 64*g+4*r+j
// is element 4*g+j of row r; formats of fewer bits than eight keep nibbles
//
//	low nibble of byte 64*c+4*r+j: element 4*c+j, high nibble: element 16+4*c+j
//
// followed by planes of upper bits: for five bits 64 bits for each g (bit 4*r+j),
// for six bits two bits for each of g = 0..3 in byte 4*r+j of one plane of 64
// bytes, then g = 4..7 in another.
//
// A tile of a float format is [K][16] elements.
const (
	tileRows = 16
	// quantElems is the number of elements along K in a block.
	quantElems = 32
	// superBlocks is the number of blocks in a block of the K-quants.
	superBlocks = 8
	// quantTile is the bytes of one block of a tile when every quant is a byte.
	quantTile = tileRows * quantElems
)

// format is the layout of a packed tile.
type format uint8

const (
	tileF32 format = iota
	tileF16
	tileBF16
	tileQ8
	tileQ4
	tileQ4M
	tileQ5
	tileQ5M
	tileQ4K
	tileQ5K
	tileQ6K
	numFormats
)

// scaleKind is the layout of a tile's scales.
type scaleKind uint8

const (
	// scaleHalf is [blocks][16] halves.
	scaleHalf scaleKind = iota
	// scaleMin is scaleHalf followed by as many minimums.
	scaleMin
	// scaleK is, for each super block, 16 halves d; then the same of dmin; then
	// for each block 16 bytes of scales; then the same of minimums.
	scaleK
	// scale6K is, for each super block, 16 halves d; then for each block two
	// times 16 signed scales, for its first and its second half.
	scale6K
)

// formatInfo describes a quantized tile format.
type formatInfo struct {
	// bits is the size of a quant: 8, or 4 with one or two bits in planes.
	bits int
	// zero is what was added to the file's signed quants.
	zero int
	// affine says that values have a minimum; otherwise they are symmetric.
	affine bool
	// scales is the layout of the scales.
	scales scaleKind
}

// formats is indexed by format; float formats have no entry.
var formats = [numFormats]formatInfo{
	tileQ8:  {bits: 8, zero: 128},
	tileQ4:  {bits: 4, zero: 8},
	tileQ4M: {bits: 4, affine: true, scales: scaleMin},
	tileQ5:  {bits: 5, zero: 16},
	tileQ5M: {bits: 5, affine: true, scales: scaleMin},
	tileQ4K: {bits: 4, affine: true, scales: scaleK},
	tileQ5K: {bits: 5, affine: true, scales: scaleK},
	tileQ6K: {bits: 6, zero: 32, scales: scale6K},
}

// formatOf returns the tile format for a file type under m.
func formatOf(d kernels.DType, m Math) format {
	if m == F32 && d.Quantized() {
		return tileF32
	}
	return [...]format{
		kernels.F32: tileF32, kernels.F16: tileF16, kernels.BF16: tileBF16,
		kernels.Q8_0: tileQ8, kernels.Q4_0: tileQ4, kernels.Q4_1: tileQ4M,
		kernels.Q5_0: tileQ5, kernels.Q5_1: tileQ5M,
		kernels.Q4_K: tileQ4K, kernels.Q5_K: tileQ5K, kernels.Q6_K: tileQ6K,
	}[d]
}

// quantized reports whether tiles of f hold quants.
func (f format) quantized() bool { return f >= tileQ8 }

// floatBytes returns the size of an element of a float format.
func (f format) floatBytes() int {
	if f == tileF32 {
		return 4
	}
	return 2
}

// quantBytes returns the bytes of one block of quants in a tile.
func (f format) quantBytes() int { return formats[f].bits * quantElems / 8 * tileRows }

// tileBytes returns the size of a tile, a multiple of a cache line.
func (f format) tileBytes(cols int) int {
	if !f.quantized() {
		return (cols*tileRows*f.floatBytes() + 63) &^ 63
	}
	blocks := cols / quantElems
	n := blocks * f.quantBytes()
	switch formats[f].scales {
	case scaleHalf:
		n += blocks * 2 * tileRows
	case scaleMin:
		n += blocks * 4 * tileRows
	case scaleK:
		n += blocks/superBlocks*4*tileRows + blocks*2*tileRows
	case scale6K:
		n += blocks/superBlocks*2*tileRows + blocks*2*tileRows
	}
	return (n + 63) &^ 63
}

// packRow puts a row of a file, of type d, into lane r of a tile.
func (f format) packRow(tile []byte, r int, d kernels.DType, cols int, src []byte) {
	if !f.quantized() {
		f.packFloats(tile, r, d, cols, src)
		return
	}
	blocks := cols / quantElems
	scales := tile[blocks*f.quantBytes():]
	if perBlock := d.BlockBytes(); d == kernels.Q8_0 || d == kernels.Q4_0 || d == kernels.Q4_1 {
		for b := range blocks {
			file := src[b*perBlock:][:perBlock]
			f.moveQuants(tile[b*f.quantBytes():][:f.quantBytes()], r, file[perBlock-f.quantBytes()/tileRows:])
			f.packScales(scales, r, b, blocks, file)
		}
		return
	}
	perFileBlock, fileBytes := d.BlockElems()/quantElems, d.BlockBytes()
	var b quant.Block
	for at := 0; at < blocks; at += perFileBlock {
		file := src[at/perFileBlock*fileBytes:][:fileBytes]
		b.Read(d, file)
		for i := range perFileBlock {
			f.packQuants(tile[(at+i)*f.quantBytes():], r, b.Q[i*quantElems:][:quantElems])
		}
		f.packScales(scales, r, at, blocks, file)
	}
}

// moveQuants is packQuants for file blocks whose bytes are a tile's already, or
// are when 128 is added: four bytes move at a time, ten times faster.
func (f format) moveQuants(block []byte, r int, quants []byte) {
	var flip uint32
	if f == tileQ8 {
		flip = 0x80808080
	}
	for at := 0; at < len(quants); at += 4 {
		v := binary.LittleEndian.Uint32(quants[at:])
		binary.LittleEndian.PutUint32(block[16*at+4*r:], v^flip)
	}
}

// packFloats puts a row into lane r of a float tile.
func (f format) packFloats(tile []byte, r int, d kernels.DType, cols int, src []byte) {
	switch {
	case f == tileF32 && d != kernels.F32: // quantized, under F32 math
		elems, bytes := d.BlockElems(), d.BlockBytes()
		var values [256]float32
		for at := 0; at < cols; at += elems {
			quant.Dequantize(values[:elems], d, src[at/elems*bytes:][:bytes])
			for i, v := range values[:elems] {
				putFloat(tile, (at+i)*tileRows+r, v)
			}
		}
	case f == tileF32:
		for k := range cols {
			copy(tile[4*(k*tileRows+r):], src[4*k:4*k+4])
		}
	default:
		for k := range cols {
			copy(tile[2*(k*tileRows+r):], src[2*k:2*k+2])
		}
	}
}

// packQuants puts 32 quants into lane r of a block.
func (f format) packQuants(block []byte, r int, q []int8) {
	info := &formats[f]
	for k, v := range q {
		u := byte(int(v) + info.zero)
		if info.bits == 8 {
			block[64*(k/4)+4*r+k%4] = u
			continue
		}
		i := k % 16
		at, shift := 64*(i/4)+4*r+i%4, k/16*4
		block[at] |= u & 15 << shift
		top := u >> 4
		switch g := k / 4; info.bits {
		case 5:
			bit := 4*r + k%4
			block[256+8*g+bit/8] |= top << (bit % 8)
		case 6:
			block[256+g/4*64+4*r+k%4] |= top << (2 * (g % 4))
		}
	}
}

// packScales copies the scales of the file block that begins at block at of a
// tile of blocks.
func (f format) packScales(dst []byte, r, at, blocks int, file []byte) {
	half := func(area, n int, src []byte) { copy(dst[area+2*(n*tileRows+r):], src[:2]) }
	supers := blocks / superBlocks
	switch formats[f].scales {
	case scaleHalf:
		half(0, at, file)
	case scaleMin:
		half(0, at, file)
		half(blocks*2*tileRows, at, file[2:])
	case scaleK:
		half(0, at/superBlocks, file)
		half(supers*2*tileRows, at/superBlocks, file[2:])
		scales, mins := quant.KScales(file[4:16])
		area := dst[supers*4*tileRows:]
		for i := range superBlocks {
			area[(at+i)*tileRows+r] = scales[i]
			area[(blocks+at+i)*tileRows+r] = mins[i]
		}
	case scale6K:
		half(0, at/superBlocks, file[208:])
		area := dst[supers*2*tileRows:]
		for i := range 2 * superBlocks {
			area[(2*at+i)*tileRows+r] = file[192+i]
		}
	}
}

// putFloat stores element i of an array of float32.
func putFloat(b []byte, i int, v float32) {
	binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
}
