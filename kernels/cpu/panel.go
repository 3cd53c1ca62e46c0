package cpu

import (
	"math"
	"unsafe"
)

// The rows of activations are cut into panels of up to maxPanel rows, as many as
// have their sums in registers at once. A row's sum is the same in a panel of
// any height.
//
// A panel of h rows of quantized activations holds for each block of 32 along K
//
//	[h][32] int8      the rounded activations
//	[h]     float32   their scale
//	[h]     float32   scale times sum: multiplies the minimum of affine weights
//	[h]     int32     -128 times the sum: takes the 128 off symmetric quants
//	[h]     int32     the same of the first 16
//	[h]     int32     the same of the last 16
//
// A panel of float activations is [K][h] float32.
const (
	maxPanel = 16
	// panelRowBytes is the bytes of a row in one block of a quantized panel.
	panelRowBytes = quantElems + 5*4
)

// panel is neighbouring rows of the activations, from row first.
type panel struct {
	first int
	shape
}

// shape is the size of a panel: rows of activations, and as many more rows of
// zeros as fill its height.
type shape struct {
	rows, height int
}

// appendPanels cuts rows into panels of the given heights, which fall to 1. What
// is left at the end is padded to padded[left] where that is not 0.
func appendPanels(panels []panel, rows int, heights []int, padded *[maxPanel + 1]int) []panel {
	for at := 0; at < rows; {
		if left := rows - at; left <= maxPanel && padded[left] != 0 {
			return append(panels, panel{at, shape{left, padded[left]}})
		}
		for _, h := range heights {
			if h <= rows-at {
				panels = append(panels, panel{at, shape{h, h}})
				at += h
				break
			}
		}
	}
	return panels
}

// minInt8Max is 2^-100: a block whose largest magnitude is below it counts as
// zero, since 127 divided by it might overflow.
const minInt8Max = (127 - 100) << 23

// int8Scale returns the scale of a block of activations and the factor that
// takes an activation to int8, given the bits of the largest magnitude. Both are
// float32 arithmetic, which every kernel repeats exactly. A block with an
// infinity or a NaN gets a NaN for its scale.
func int8Scale(top uint32) (scale, inv float32) {
	switch {
	case top >= 0x7f800000:
		return math.Float32frombits(0x7fc00000), 0
	case top < minInt8Max:
		return 0, 0
	}
	amax := math.Float32frombits(top)
	return amax / 127, 127 / amax
}

// maxMagnitude returns the bits of the largest magnitude. As integers,
// magnitudes order like the numbers, and NaN comes last.
func maxMagnitude(block []float32) uint32 {
	var top uint32
	for _, v := range block {
		top = max(top, math.Float32bits(v)&0x7fffffff)
	}
	return top
}

// quantizeGeneric fills a panel from rows of x that lie stride elements apart.
func quantizeGeneric(dst unsafe.Pointer, x []float32, stride int, s shape, blocks int) {
	h := s.height
	out := unsafe.Slice((*byte)(dst), blocks*h*panelRowBytes)
	for m := range s.rows {
		for b := range blocks {
			block := x[m*stride+b*quantElems:][:quantElems]
			scale, inv := int8Scale(maxMagnitude(block))
			at := out[b*h*panelRowBytes:]
			var sums [2]int32
			for i, v := range block {
				q := roundInt8(v * inv)
				at[m*quantElems+i] = byte(q)
				sums[i/16] += int32(q)
			}
			meta := at[h*quantElems:]
			sum := sums[0] + sums[1]
			putFloat(meta, m, scale)
			putFloat(meta, h+m, scale*float32(sum))
			putInt(meta, 2*h+m, -128*sum)
			putInt(meta, 3*h+m, -128*sums[0])
			putInt(meta, 4*h+m, -128*sums[1])
		}
	}
}

// roundInt8 rounds to nearest even. A NaN becomes -128, as in the vector code.
func roundInt8(v float32) int8 {
	if v != v {
		return -128
	}
	return int8(math.RoundToEven(float64(v)))
}

// packFloatPanel fills a float panel of height h.
func packFloatPanel(dst []float32, x []float32, stride, h, cols int) {
	for m := range h {
		for k, v := range x[m*stride:][:cols] {
			dst[k*h+m] = v
		}
	}
}

// putInt stores element i of an array of int32.
func putInt(b []byte, i int, v int32) { putFloat(b, i, math.Float32frombits(uint32(v))) }
