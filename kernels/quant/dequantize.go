// Package quant reads the element types of model files: plain floats and
// GGML's block formats (source: ggml-common.h and the GGUF specification).
package quant

import (
	"encoding/binary"
	"fmt"
	"math"

	"waybill/kernels"
)

// Dequantize sets dst to the float32 values of src, elements of type d that lie
// as in a model file. len(dst) must be a multiple of d.BlockElems() and src must
// hold exactly d.RowBytes(len(dst)) bytes; anything else is a bug and panics.
func Dequantize(dst []float32, d kernels.DType, src []byte) {
	if !d.Valid() || len(dst)%d.BlockElems() != 0 || len(src) != d.RowBytes(len(dst)) {
		panic(fmt.Sprintf("BUG: quant: %d bytes of %v for %d elements", len(src), d, len(dst)))
	}
	switch d {
	case kernels.F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
		return
	case kernels.F16:
		for i := range dst {
			dst[i] = F16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
		}
		return
	case kernels.BF16:
		for i := range dst {
			dst[i] = BF16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
		}
		return
	}
	elems, bytes := d.BlockElems(), d.BlockBytes()
	var b Block
	for len(dst) > 0 {
		b.Read(d, src[:bytes])
		for g := 0; g < elems/GroupElems; g++ {
			// Scale*q is rounded before Min is added, as the reference does it;
			// the conversion keeps the compiler from fusing the two.
			for i := g * GroupElems; i < (g+1)*GroupElems; i++ {
				dst[i] = float32(b.Scale[g]*float32(b.Q[i])) + b.Min[g]
			}
		}
		dst, src = dst[elems:], src[bytes:]
	}
}
