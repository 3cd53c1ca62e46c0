package cpu

import "unsafe"

// The wrappers below take slices apart; elementwise.go says what each does.

func sumSquares512(x []float32) float32 {
	var l lanes
	sumSquaresAVX512(pointer(unsafe.SliceData(x)), len(x), &l)
	return l.sum()
}

func add512(x, y []float32) {
	addAVX512(pointer(unsafe.SliceData(x)), pointer(unsafe.SliceData(y)), len(y))
}

func scale512(dst, x, w []float32, factor float32) {
	scaleAVX512(pointer(unsafe.SliceData(dst)), pointer(unsafe.SliceData(x)), pointer(unsafe.SliceData(w)), len(x), factor)
}

func blend512(x, y []float32, keep, take float32) {
	blendAVX512(pointer(unsafe.SliceData(x)), pointer(unsafe.SliceData(y)), len(y), keep, take)
}

func silu512(dst, gate, up []float32) {
	siluAVX512(pointer(unsafe.SliceData(dst)), pointer(unsafe.SliceData(gate)), pointer(unsafe.SliceData(up)), len(gate))
}

// gate512 sets, for each row of n gates and n ups, the gates to silu(gate)*up; n is a
// multiple of 16.
func gate512(x pointer, rows, n int) { gateAVX512(x, rows, n) }

func rotate512(x, y, cos, sin []float32) {
	rotateAVX512(pointer(unsafe.SliceData(x)), pointer(unsafe.SliceData(y)),
		pointer(unsafe.SliceData(cos)), pointer(unsafe.SliceData(sin)), len(cos))
}

func max512(x []float32) float32 {
	return maxAVX512(pointer(unsafe.SliceData(x)), len(x))
}

func exp512(x []float32, top float32, l *lanes) {
	expAVX512(pointer(unsafe.SliceData(x)), len(x), top, l)
}

//go:noescape
func sumSquaresAVX512(x pointer, n int, sums *lanes)

//go:noescape
func addAVX512(x, y pointer, n int)

//go:noescape
func scaleAVX512(dst, x, w pointer, n int, factor float32)

//go:noescape
func blendAVX512(x, y pointer, n int, keep, take float32)

//go:noescape
func siluAVX512(dst, gate, up pointer, n int)

//go:noescape
func gateAVX512(x pointer, rows, n int)

//go:noescape
func rotateAVX512(x, y, cos, sin pointer, n int)

//go:noescape
func maxAVX512(x pointer, n int) float32

//go:noescape
func expAVX512(x pointer, n int, top float32, sums *lanes)
