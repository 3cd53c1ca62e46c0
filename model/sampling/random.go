package sampling

import "math"

// uniform returns draw number n of a seed, in [0, 1). It has no state: the draw
// depends on the pair alone, so a sequence's output does not change with its
// company, and a preempted one goes on where it was.
//
// Both halves pass the finalizer of splitmix64 (Steele, Lea, Flood 2014), since
// seeds and indices are small neighbouring numbers as a rule.
func uniform(seed uint64, n int) float64 {
	z := mix(mix(seed+0x9e3779b97f4a7c15) ^ mix(uint64(n)+0xd1b54a32d192ed03))
	return float64(z>>11) / (1 << 53)
}

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// expSum sets dst[i] = e^((src[i] - best) * scale) for src[i] <= best and returns
// the sum. The relative error of each is below 3e-7; below the smallest normal
// number it is 0.
//
// A draw needs one for each entry of the vocabulary, so the body is written out
// here, in float32: 270 µs for 49,152 entries, against 470 with math.Exp (one
// busy Xeon core of 2023).
//
// With x = n ln 2 + r, r within half of ln 2, e^r is its Taylor polynomial, whose
// first term left out is below 1.3e-7, and n is added to the exponent.
func expSum(dst, src []float32, best, scale float32) float64 {
	const (
		log2e = 1.4426950408889634
		// ln2 in two parts: the product of n with the first is exact.
		ln2High = 0.693359375
		ln2Low  = -2.12194440e-4
		// shift rounds to an integer, which is then in the low bits.
		shift = 3 << 22
		// least is just above the logarithm of the smallest normal number.
		least = -87.3
	)
	sum := 0.0
	dst = dst[:len(src)]
	for i, x := range src {
		x = (x - best) * scale
		if x < least {
			dst[i] = 0
			continue
		}
		t := float32(x*log2e) + shift
		n := t - shift
		r := x - n*ln2High - n*ln2Low
		p := float32(1.0 / 720)
		p = p*r + 1.0/120
		p = p*r + 1.0/24
		p = p*r + 1.0/6
		p = p*r + 0.5
		p = p*r + 1
		p = p*r + 1
		p = math.Float32frombits(math.Float32bits(p) + math.Float32bits(t)<<23)
		dst[i] = p
		sum += float64(p)
	}
	return sum
}
