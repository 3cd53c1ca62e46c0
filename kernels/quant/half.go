package quant

import "math"

// F16ToF32 widens an IEEE 754 half. The result is exact.
func F16ToF32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h>>10) & 0x1f
	frac := uint32(h & 0x3ff)
	switch {
	case exp == 0x1f: // infinity or NaN, payload kept
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	case exp != 0:
		return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
	}
	// Subnormal: frac * 2^-24 is exact in float32.
	v := float32(frac) * 0x1p-24
	return math.Float32frombits(sign | math.Float32bits(v))
}

// F32ToF16 narrows to an IEEE 754 half, rounding to nearest even. What is too
// large becomes infinity; a NaN stays a NaN.
func F32ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	abs := b & 0x7fffffff
	switch {
	case abs > 0x7f800000:
		return sign | 0x7e00
	case abs >= 0x47800000: // 2^16 and more
		return sign | 0x7c00
	case abs >= 0x38800000: // 2^-14: the half is normal
		abs += 0xfff + abs>>13&1
		return sign | uint16((abs-0x38000000)>>13)
	}
	// Subnormal half: adding 0.5 aligns the wanted bits (units of 2^-24) with
	// the end of the float32 mantissa, and the adder rounds to nearest even.
	v := math.Float32frombits(abs) + 0.5
	return sign | uint16(math.Float32bits(v)-0x3f000000)
}

// BF16ToF32 widens a bfloat16. The result is exact.
func BF16ToF32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// F32ToBF16 narrows to a bfloat16, rounding to nearest even. A NaN stays a NaN.
func F32ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}
