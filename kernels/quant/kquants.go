package quant

// KScales unpacks the twelve bytes of 6-bit scales and minimums that Q4_K and
// Q5_K share: eight of each, for eight groups of 32 elements.
//
// Bytes 0-3 hold the low six bits of scales 0-3, bytes 4-7 those of minimums
// 0-3; bytes 8-11 hold the low four bits of scales 4-7 (low nibble) and of
// minimums 4-7 (high nibble), whose upper two bits are the top bits of bytes
// 0-3 and 4-7.
func KScales(packed []byte) (scales, mins [8]uint8) {
	for j := range 4 {
		scales[j] = packed[j] & 63
		mins[j] = packed[j+4] & 63
		scales[j+4] = packed[j+8]&15 | packed[j]>>6<<4
		mins[j+4] = packed[j+8]>>4 | packed[j+4]>>6<<4
	}
	return scales, mins
}

// setK sets scales and minimums of Q4_K and Q5_K from the block's first 16
// bytes: d, dmin, packed scales.
func (b *Block) setK(src []byte) {
	d, dmin := half(src), half(src[2:])
	scales, mins := KScales(src[4:16])
	for j := range 8 {
		s, m := d*float32(scales[j]), -(dmin * float32(mins[j]))
		b.Scale[2*j], b.Scale[2*j+1] = s, s
		b.Min[2*j], b.Min[2*j+1] = m, m
	}
}

// readQ4K reads d, dmin, scales[12], qs[128]. Each 32 bytes of qs hold 64
// elements: the low nibbles, then the high ones.
func (b *Block) readQ4K(src []byte) {
	b.setK(src)
	for i, v := range src[16:144] {
		at := i/32*64 + i%32
		b.Q[at] = int8(v & 15)
		b.Q[at+32] = int8(v >> 4)
	}
}

// readQ5K reads d, dmin, scales[12], qh[32], qs[128]. Bit g of qh[i] is the
// fifth bit of element i of the group of 32 number g.
func (b *Block) readQ5K(src []byte) {
	b.setK(src)
	qh := src[16:48]
	for i, v := range src[48:176] {
		chunk, at := i/32, i/32*64+i%32
		b.Q[at] = int8(v&15 | qh[i%32]>>(2*chunk)&1<<4)
		b.Q[at+32] = int8(v>>4 | qh[i%32]>>(2*chunk+1)&1<<4)
	}
}

// readQ6K reads ql[128], qh[64], scales[16] (signed), d. Each half block of 128
// elements has 64 bytes of low nibbles and 32 bytes with four two-bit tops.
func (b *Block) readQ6K(src []byte) {
	ql, qh, scales, d := src[:128], src[128:192], src[192:208], half(src[208:])
	for j, s := range scales {
		b.Scale[j] = d * float32(int8(s))
		b.Min[j] = 0
	}
	for h := range 2 {
		for i := range 32 {
			top := qh[32*h+i]
			lo, hi := ql[64*h+i], ql[64*h+32+i]
			at := 128*h + i
			b.Q[at] = int8(lo&15|top&3<<4) - 32
			b.Q[at+32] = int8(hi&15|top>>2&3<<4) - 32
			b.Q[at+64] = int8(lo>>4|top>>4&3<<4) - 32
			b.Q[at+96] = int8(hi>>4|top>>6<<4) - 32
		}
	}
}
