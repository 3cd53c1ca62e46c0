package cpu

import (
	"unsafe"

	"waybill/kernels"
	"waybill/kernels/quant"
)

// halvesOf views bytes as 16-bit elements.
func halvesOf(b []byte) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/2)
}

// narrow rounds src to F16 or BF16.
func narrow(dst []uint16, src []float32, d kernels.DType) {
	if d == kernels.F16 {
		for i, v := range src {
			dst[i] = quant.F32ToF16(v)
		}
		return
	}
	for i, v := range src {
		dst[i] = quant.F32ToBF16(v)
	}
}

// widen returns the value of a F16 or BF16.
func widen(h uint16, d kernels.DType) float32 {
	if d == kernels.F16 {
		return quant.F16ToF32(h)
	}
	return quant.BF16ToF32(h)
}
