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
		a.mix[1] = func(o, p, values pointer, n, dim int) { mixGeneric(o, p, values, n, dim, 1, d) }
		for rows := mixRows; rows <= attentionRows; rows += mixRows {
			a.scores[rows] = scoresByTile(func(dst, q, keys pointer, dim int) { scoresGeneric(dst, q, keys, dim, rows, d) }, d, nil)
			a.mix[rows] = mixByTile(func(o, p, values pointer, n, dim int) { mixGeneric(o, p, values, n, dim, rows, d) }, d, nil)
		}
	}
}

// scoresByTile makes a kernel for lists of one for a tile. prefetch, if there is
// one, asks for the n bytes at p.
func scoresByTile(tile func(dst, q, keys pointer, dim int), d kernels.DType, prefetch func(p pointer, n int)) scoresKernel {
	return func(dst, q, keys pointer, tiles, dim int) {
		list := unsafe.Slice((*pointer)(keys), tiles+lead)
		for i := range tiles {
			if prefetch != nil {
				prefetch(list[i+lead], tileRows*dim*d.BlockBytes())
			}
			tile(unsafe.Add(dst, 4*i*tileRows), q, list[i], dim)
		}
	}
}

// mixByTile is scoresByTile for values.
func mixByTile(tile func(o, p, values pointer, n, dim int), d kernels.DType, prefetch func(p pointer, n int)) mixKernel {
	return func(o, p, values pointer, n, dim int) {
		list := unsafe.Slice((*pointer)(values), tilesOf(n)+lead)
		for i := 0; n > 0; i++ {
			if prefetch != nil {
				prefetch(list[i+lead], tileRows*dim*d.BlockBytes())
			}
			tile(o, unsafe.Add(p, 4*i*tileRows), list[i], min(n, tileRows), dim)
			n -= tileRows
		}
	}
}

// element returns element i of an array of d.
func element(p pointer, i int, d kernels.DType) float32 {
	if d == kernels.F32 {
		return *(*float32)(unsafe.Add(p, 4*i))
	}
	return widen(*(*uint16)(unsafe.Add(p, 2*i)), d)
}

// scoresGeneric is the scores of one tile in plain Go.
func scoresGeneric(dst, q, keys pointer, dim, rows int, dt kernels.DType) {
	var sums [attentionRows]lanes
	query := unsafe.Slice((*float32)(q), dim*rows)
	for d := range dim {
		var key lanes
		for i := range key {
			key[i] = element(keys, d*tileRows+i, dt)
		}
		for r := range rows {
			v := query[r*dim+d]
			for i, k := range key {
				sums[r][i] += float32(v * k)
			}
		}
	}
	for r := range rows {
		*(*lanes)(unsafe.Add(dst, 4*r*spanLen)) = sums[r]
	}
}

// mixGeneric adds up to a tile of values in plain Go.
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
