package kerneltest

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"waybill/kernels"
	"waybill/kernels/quant"
)

// dtypes are all types that a weight may have.
var dtypes = []kernels.DType{
	kernels.F32, kernels.F16, kernels.BF16, kernels.Q8_0, kernels.Q4_0, kernels.Q4_1,
	kernels.Q5_0, kernels.Q5_1, kernels.Q4_K, kernels.Q5_K, kernels.Q6_K,
}

// halfFields are the offsets of the half-precision fields in a block.
var halfFields = map[kernels.DType][]int{
	kernels.Q8_0: {0}, kernels.Q4_0: {0}, kernels.Q4_1: {0, 2}, kernels.Q5_0: {0}, kernels.Q5_1: {0, 2},
	kernels.Q4_K: {0, 2}, kernels.Q5_K: {0, 2}, kernels.Q6_K: {208},
}

// randomTensor returns a tensor whose every bit pattern is possible but for
// scales and floats, which are normal numbers.
func randomTensor(rng *rand.Rand, name string, d kernels.DType, rows, cols int) kernels.HostTensor {
	data := make([]byte, rows*d.RowBytes(cols))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	normal := func() float32 { return float32(rng.NormFloat64()) }
	for at := 0; at < len(data); at += d.BlockBytes() {
		switch d {
		case kernels.F32:
			binary.LittleEndian.PutUint32(data[at:], math.Float32bits(normal()))
		case kernels.F16:
			binary.LittleEndian.PutUint16(data[at:], quant.F32ToF16(normal()))
		case kernels.BF16:
			binary.LittleEndian.PutUint16(data[at:], quant.F32ToBF16(normal()))
		default:
			for _, f := range halfFields[d] {
				binary.LittleEndian.PutUint16(data[at+f:], quant.F32ToF16(normal()/32))
			}
		}
	}
	return kernels.HostTensor{Name: name, DType: d, Rows: rows, Cols: cols, Data: data}
}

// magnitudes returns for each element of a tensor |scale*quant| + |minimum|, or
// the value's magnitude: what rounding errors of a product are relative to.
func magnitudes(h kernels.HostTensor) []float32 {
	m := make([]float32, h.Rows*h.Cols)
	if !h.DType.Quantized() {
		quant.Dequantize(m, h.DType, h.Data)
		for i, v := range m {
			m[i] = float32(math.Abs(float64(v)))
		}
		return m
	}
	var b quant.Block
	elems, bytes := h.DType.BlockElems(), h.DType.BlockBytes()
	for at := 0; at < len(m); at += elems {
		b.Read(h.DType, h.Data[at/elems*bytes:])
		for i := range elems {
			g := i / quant.GroupElems
			m[at+i] = float32(math.Abs(float64(b.Scale[g])*float64(b.Q[i])) + math.Abs(float64(b.Min[g])))
		}
	}
	return m
}

// pack packs parts in both backends.
func (b *bench) pack(parts ...kernels.HostTensor) (under, oracle kernels.Weight) {
	b.t.Helper()
	return pack(b.t, b.under, parts...), pack(b.t, b.oracle, parts...)
}
