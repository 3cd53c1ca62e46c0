package cpu

import "math"

// The plain Go forms of the kernels that work along a row. Sums are kept in 16
// lanes, as the vector code keeps them, and added up as reduceLanes does.

// lanes is a sum in 16 parts.
type lanes [tileRows]float32

// sum adds the lanes up, halves onto halves. Written out, since loops were
// 1.6 % of a prefill.
func (l *lanes) sum() float32 {
	a, b, c, d := l[0]+l[8], l[1]+l[9], l[2]+l[10], l[3]+l[11]
	e, f, g, h := l[4]+l[12], l[5]+l[13], l[6]+l[14], l[7]+l[15]
	a, b, c, d = a+e, b+f, c+g, d+h
	return (a + c) + (b + d)
}

// sumSquaresGeneric sets nothing and returns Σ x² in lanes.
func sumSquaresGeneric(x []float32) float32 {
	var l lanes
	for i, v := range x {
		l[i%tileRows] += float32(v * v)
	}
	return l.sum()
}

// inverseRMS returns 1/sqrt(sum/n+eps).
func inverseRMS(sum float32, n int, eps float32) float32 {
	return float32(1 / math.Sqrt(float64(sum)/float64(n)+float64(eps)))
}

// addGeneric adds y to x.
func addGeneric(x, y []float32) {
	for i, v := range y {
		x[i] += v
	}
}

// scaleGeneric sets dst = x*factor*w; w may be nil for ones.
func scaleGeneric(dst, x, w []float32, factor float32) {
	if w == nil {
		for i, v := range x {
			dst[i] = v * factor
		}
		return
	}
	for i, v := range x {
		dst[i] = v * factor * w[i]
	}
}

// blendGeneric sets x = x*keep + y*take, every product rounded.
func blendGeneric(x, y []float32, keep, take float32) {
	for i, v := range y {
		x[i] = float32(x[i]*keep) + float32(v*take)
	}
}

// siluGeneric sets dst = gate/(1+exp(-gate)) * up.
func siluGeneric(dst, gate, up []float32) {
	for i, g := range gate {
		dst[i] = g / (1 + exp32(-g)) * up[i]
	}
}

// exp32 is e^x rounded to float32.
func exp32(x float32) float32 { return float32(math.Exp(float64(x))) }

// maxGeneric returns the largest of x; a NaN may be lost, since the exponential
// that follows brings it back.
func maxGeneric(x []float32) float32 {
	m := float32(math.Inf(-1))
	for _, v := range x {
		if v > m {
			m = v
		}
	}
	return m
}

// minWeight is the logarithm of the smallest weight that is not taken for zero
// (2^-60), beside a largest weight of 1. Smaller ones change no bit of a float32
// sum of values of like size, and as products they become subnormal numbers,
// which made the sum of values 20 times slower (measured).
const minWeight = -42

// expGeneric sets x = exp(x-top), or 0 below minWeight, and adds it to the lanes.
// len(x) is a multiple of 16.
func expGeneric(x []float32, top float32, l *lanes) {
	for i, v := range x {
		p := float32(0)
		if v -= top; !(v < minWeight) {
			p = exp32(v)
		}
		x[i] = p
		l[i%tileRows] += p
	}
}

// rotateGeneric turns the pairs (x[i], y[i]) by the angles whose cosines and
// sines are given.
func rotateGeneric(x, y, cos, sin []float32) {
	for i, c := range cos {
		a, b := x[i], y[i]
		x[i] = float32(a*c) - float32(b*sin[i])
		y[i] = float32(b*c) + float32(a*sin[i])
	}
}
