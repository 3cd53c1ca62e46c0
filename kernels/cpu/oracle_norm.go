package cpu

import (
	"math"

	"waybill/kernels"
)

// RMSNorm sets dst[r] = x[r] / sqrt(mean(x[r]²)+eps) * w.
func (o *Oracle) RMSNorm(dst, x, w kernels.Buffer, rows, cols int, eps float32) {
	d, in, weight := floats(dst, rows*cols, "dst"), floats(x, rows*cols, "x"), floats(w, cols, "w")
	for r := range rows {
		rmsNorm64(d[r*cols:(r+1)*cols], in[r*cols:(r+1)*cols], weight, eps)
	}
}

// AddRMSNorm adds x to residual, then sets dst to RMSNorm(residual).
func (o *Oracle) AddRMSNorm(dst, residual, x, w kernels.Buffer, rows, cols int, eps float32) {
	res, in := floats(residual, rows*cols, "residual"), floats(x, rows*cols, "x")
	for i, v := range in {
		res[i] += v
	}
	o.RMSNorm(dst, residual, w, rows, cols, eps)
}

// rmsNorm64 normalises one row.
func rmsNorm64(dst, x, w []float32, eps float32) {
	var sum float64
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	inv := 1 / math.Sqrt(sum/float64(len(x))+float64(eps))
	for i, v := range x {
		dst[i] = float32(float64(v) * inv * float64(w[i]))
	}
}

// SiLUMul sets dst [rows, inner] = silu(gateUp[:, :inner]) * gateUp[:, inner:].
func (o *Oracle) SiLUMul(dst, gateUp kernels.Buffer, rows, inner int) {
	d, in := floats(dst, rows*inner, "dst"), floats(gateUp, rows*2*inner, "gateUp")
	for r := range rows {
		gate := in[2*r*inner : (2*r+1)*inner]
		up := in[(2*r+1)*inner : (2*r+2)*inner]
		for i, g := range gate {
			d[r*inner+i] = float32(float64(g) / (1 + math.Exp(-float64(g))) * float64(up[i]))
		}
	}
}
