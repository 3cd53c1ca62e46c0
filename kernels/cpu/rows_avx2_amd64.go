package cpu

import "unsafe"

// The wrappers below give whole registers to the assembly and do the rest of a
// row in Go; elementwise.go says what each does.

// whole returns how many of n elements fill pairs of registers.
func whole(n int) int { return n &^ (tileRows - 1) }

func sumSquares256(x []float32) float32 {
	var l lanes
	n := whole(len(x))
	if n > 0 {
		sumSquaresAVX2(pointer(unsafe.SliceData(x)), n, &l)
	}
	for i, v := range x[n:] {
		l[i] += float32(v * v)
	}
	return l.sum()
}

func add256(x, y []float32) {
	n := whole(len(y))
	if n > 0 {
		addAVX2(pointer(unsafe.SliceData(x)), pointer(unsafe.SliceData(y)), n)
	}
	addGeneric(x[n:], y[n:])
}

func scale256(dst, x, w []float32, factor float32) {
	n := whole(len(x))
	if n > 0 {
		scaleAVX2(pointer(unsafe.SliceData(dst)), pointer(unsafe.SliceData(x)), pointer(unsafe.SliceData(w)), n, factor)
	}
	if w != nil {
		w = w[n:]
	}
	scaleGeneric(dst[n:], x[n:], w, factor)
}

func blend256(x, y []float32, keep, take float32) {
	n := whole(len(y))
	if n > 0 {
		blendAVX2(pointer(unsafe.SliceData(x)), pointer(unsafe.SliceData(y)), n, keep, take)
	}
	blendGeneric(x[n:], y[n:], keep, take)
}

func silu256(dst, gate, up []float32) {
	n := whole(len(gate))
	if n > 0 {
		siluAVX2(pointer(unsafe.SliceData(dst)), pointer(unsafe.SliceData(gate)), pointer(unsafe.SliceData(up)), n)
	}
	siluGeneric(dst[n:], gate[n:], up[n:])
}

func rotate256(x, y, cos, sin []float32) {
	n := whole(len(cos))
	if n > 0 {
		rotateAVX2(pointer(unsafe.SliceData(x)), pointer(unsafe.SliceData(y)),
			pointer(unsafe.SliceData(cos)), pointer(unsafe.SliceData(sin)), n)
	}
	rotateGeneric(x[n:], y[n:], cos[n:], sin[n:])
}

func max256(x []float32) float32 {
	var tops lanes
	maxAVX2(pointer(unsafe.SliceData(x)), len(x), &tops)
	return maxGeneric(tops[:])
}

func exp256(x []float32, top float32, l *lanes) {
	expAVX2(pointer(unsafe.SliceData(x)), len(x), top, l)
}

//go:noescape
func sumSquaresAVX2(x pointer, n int, sums *lanes)

//go:noescape
func addAVX2(x, y pointer, n int)

//go:noescape
func scaleAVX2(dst, x, w pointer, n int, factor float32)

//go:noescape
func blendAVX2(x, y pointer, n int, keep, take float32)

//go:noescape
func siluAVX2(dst, gate, up pointer, n int)

//go:noescape
func rotateAVX2(x, y, cos, sin pointer, n int)

//go:noescape
func maxAVX2(x pointer, n int, tops *lanes)

//go:noescape
func expAVX2(x pointer, n int, top float32, sums *lanes)
