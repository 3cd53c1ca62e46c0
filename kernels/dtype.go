package kernels

import "fmt"

// DType is an element type of a weight tensor as it lies in a model file.
type DType uint8

// The element types that a model file may hold. The quantized ones are GGML's
// block formats (source: the GGUF specification and ggml-common.h).
const (
	F32 DType = iota
	F16
	BF16
	Q8_0
	Q4_0
	Q4_1
	Q5_0
	Q5_1
	Q4_K
	Q5_K
	Q6_K
	numDTypes
)

// dtypeLayout gives the elements and bytes of one block.
var dtypeLayout = [numDTypes]struct {
	name  string
	elems int
	bytes int
}{
	F32:  {"F32", 1, 4},
	F16:  {"F16", 1, 2},
	BF16: {"BF16", 1, 2},
	Q8_0: {"Q8_0", 32, 34},
	Q4_0: {"Q4_0", 32, 18},
	Q4_1: {"Q4_1", 32, 20},
	Q5_0: {"Q5_0", 32, 22},
	Q5_1: {"Q5_1", 32, 24},
	Q4_K: {"Q4_K", 256, 144},
	Q5_K: {"Q5_K", 256, 176},
	Q6_K: {"Q6_K", 256, 210},
}

// String returns the type's name as model files write it, such as "Q4_1".
func (d DType) String() string {
	if d < numDTypes {
		return dtypeLayout[d].name
	}
	return fmt.Sprintf("DType(%d)", uint8(d))
}

// Valid reports whether d is one of the types above. The other methods may be
// called on valid types only.
func (d DType) Valid() bool { return d < numDTypes }

// BlockElems returns how many elements one block holds (1 for plain floats).
func (d DType) BlockElems() int { return dtypeLayout[d].elems }

// BlockBytes returns the size of one block in bytes.
func (d DType) BlockBytes() int { return dtypeLayout[d].bytes }

// Quantized reports whether elements share a scale within a block.
func (d DType) Quantized() bool { return d >= Q8_0 }

// RowBytes returns the size in bytes of a row of cols elements. cols must be a
// multiple of BlockElems.
func (d DType) RowBytes(cols int) int {
	return cols / d.BlockElems() * d.BlockBytes()
}
