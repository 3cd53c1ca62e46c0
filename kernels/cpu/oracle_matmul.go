package cpu

import (
	"math"

	"waybill/kernels"
)

// MatMul sets dst [rows, w.Rows()] = x [rows, w.Cols()] · wᵀ + bias.
func (o *Oracle) MatMul(dst, x kernels.Buffer, w kernels.Weight, bias kernels.Buffer, rows int) {
	m := w.(*oracleWeight)
	d, in := floats(dst, rows*m.rows, "dst"), floats(x, rows*m.cols, "x")
	var b []float32
	if bias != nil {
		b = floats(bias, m.rows, "bias")
	}
	rounded := make([]float64, m.cols)
	exact := make([]float64, m.cols)
	for r := range rows {
		row := in[r*m.cols : (r+1)*m.cols]
		for i, v := range row {
			exact[i] = float64(v)
		}
		if o.math == Int8 && m.cols%quantElems == 0 {
			roundToInt8(rounded, row)
		}
		for n := range m.rows {
			a := exact
			if m.rounded[n] {
				a = rounded
			}
			sum := dot64(a, m.row(n))
			if b != nil {
				sum += float64(b[n])
			}
			d[r*m.rows+n] = float32(sum)
		}
	}
}

// dot64 returns Σ a[i]*w[i] over four partial sums.
func dot64(a []float64, w []float32) float64 {
	a = a[:len(w)]
	var s0, s1, s2, s3 float64
	i := 0
	for ; i+4 <= len(w); i += 4 {
		s0 += a[i] * float64(w[i])
		s1 += a[i+1] * float64(w[i+1])
		s2 += a[i+2] * float64(w[i+2])
		s3 += a[i+3] * float64(w[i+3])
	}
	for ; i < len(w); i++ {
		s0 += a[i] * float64(w[i])
	}
	return s0 + s1 + (s2 + s3)
}

// roundToInt8 sets dst to what the int8 path sees of x: for each block of 32 the
// nearest multiples (ties to even) of scale = max|x|/127. A block with an
// infinity or a NaN becomes NaN.
func roundToInt8(dst []float64, x []float32) {
	for at := 0; at < len(x); at += quantElems {
		block := x[at : at+quantElems]
		scale, inv := int8Scale(maxMagnitude(block))
		for i, v := range block {
			dst[at+i] = math.RoundToEven(float64(v*inv)) * float64(scale)
		}
	}
}
