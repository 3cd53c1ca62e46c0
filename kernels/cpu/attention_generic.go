package cpu

import (
	"unsafe"

	"waybill/kernels"
)

// attentionFor returns the kernels for a cache of d. Vector code works on 16
// elements of a head at a time; odd head sizes take plain Go throughout.
func (k *kernelSet) attentionFor(d kernels.DType, dim int) *attentionKernels {
	if dim%tileRows != 0 {
		k = &generic
	}
	return &k.attention[d]
}

func init() {
	for _, d := range []kernels.DType{kernels.F32, kernels.F16, kernels.BF16} {
		a := &generic.attention[d]
		for rows := mixRows; rows <= attentionRows; rows += mixRows {
			a.scores[rows] = func(dst, q, keys pointer, dim int) { scoresGeneric(dst, q, keys, dim, rows, d) }
		}
		a.mix1 = func(o, p, values pointer, n, dim int) { mixGeneric(o, p, values, n, dim, 1, d) }
		a.mix4 = func(o, p, values pointer, n, dim int) { mixGeneric(o, p, values, n, dim, mixRows, d) }
	}
}

// element returns element i of an array of d.
func element(p pointer, i int, d kernels.DType) float32 {
	if d == kernels.F32 {
		return *(*float32)(unsafe.Add(p, 4*i))
	}
	return widen(*(*uint16)(unsafe.Add(p, 2*i)), d)
}

// scoresGeneric is attentionKernels.scores in plain Go.
func scoresGeneric(dst, q, keys pointer, dim, rows int, dt kernels.DType) {
	var sums [attentionRows]lanes
	query := unsafe.Slice((*float32)(q), dim*rows)
	for d := range dim {
		var key lanes
		for i := range key {
			key[i] = element(keys, d*tileRows+i, dt)
		}
		for r, v := range query[d*rows : (d+1)*rows] {
			for i, k := range key {
				sums[r][i] += float32(v * k)
			}
		}
	}
	for r := range rows {
		*(*lanes)(unsafe.Add(dst, 4*r*spanLen)) = sums[r]
	}
}

// mixGeneric is attentionKernels.mix1 and mix4 in plain Go.
func mixGeneric(o, p, values pointer, n, dim, rows int, dt kernels.DType) {
	sums := unsafe.Slice((*float32)(o), dim*rows)
	for j := range n {
		for d := range dim {
			value := element(values, j*dim+d, dt) // once for all rows: widening is slow
			for r := range rows {
				weight := *(*float32)(unsafe.Add(p, 4*(r*spanLen+j)))
				sums[r*dim+d] += float32(weight * value)
			}
		}
	}
}
