package cpu

import (
	"fmt"
	"unsafe"

	"waybill/kernels"
)

// pointer is memory that a kernel reads or writes. Kernels get addresses, since
// a slice's header costs them registers; the op that calls them has checked
// every length.
type pointer = unsafe.Pointer

// kernelSet is the code of one CPU level. Kernels of one level agree bit for bit
// whatever the height of a panel.
type kernelSet struct {
	name string
	// heights are the panel heights there are matrix kernels for, falling to 1;
	// floatHeights are those of float kernels. What is left of less than a panel
	// is padded to padded[left] rows, or cut further where that is 0.
	heights, floatHeights []int
	padded                [maxPanel + 1]int
	// quantize fills the rows of a panel of quantized activations; padding is
	// left alone.
	quantize func(dst pointer, x []float32, stride int, s shape, blocks int)
	// halves widens half-precision scales.
	halves func(dst []float32, src []byte)
	// kScales multiplies the scales of the K-quants out.
	kScales func(dst []float32, halves, bytes []byte, kind byteKind)
	// unpackQuants is indexed by format; nil where tiles lie unpacked.
	unpackQuants [numFormats]func(dst, tile pointer, blocks int)
	// int8 and float are the matrix kernels, by height.
	symmetric, affine, halfBlocks [maxPanel + 1]int8Kernel
	float                         [numFormats][maxPanel + 1]floatKernel
	// fused does without unpacking; nil where there is none. It serves up to
	// fusedPanels panels: with more it is cheaper to unpack a tile once.
	fusedPanels int
	fused       [numFormats][maxPanel + 1]fusedKernel
	// tiles is the code for a matrix unit, nil where there is none.
	tiles *tileKernels

	// narrow rounds to a cache's 16-bit type.
	narrow func(dst []uint16, src []float32, d kernels.DType)
	// The kernels that work along a row; elementwise.go says what they do.
	sumSquares func(x []float32) float32
	add        func(x, y []float32)
	scale      func(dst, x, w []float32, factor float32)
	silu       func(dst, gate, up []float32)
	gate       func(x pointer, rows, n int)
	rotate     func(x, y, cos, sin []float32)
	blend      func(x, y []float32, keep, take float32)
	max        func(x []float32) float32
	exp        func(x []float32, top float32, l *lanes)

	// peak runs int8 products in registers alone and returns the number of
	// multiplications and additions, read reads memory, a multiple of 512 bytes;
	// nil where there is no such code. They only serve as yardsticks.
	peak func() int
	read func(b []byte)

	// attention is indexed by the cache's element type.
	attention [kernels.BF16 + 1]attentionKernels
}

// int8Kernel adds up one tile against one panel: dst[m*stride bytes + 4*r] for
// each row m of the panel and lane r of the tile. mins is used by affine kernels
// only.
type int8Kernel func(dst pointer, stride int, quants, scales, mins, panel pointer, blocks int)

// fusedKernel adds up several packed tiles, tileBytes apart, against one panel;
// the next tile's sums go to the next 16 elements of dst.
type fusedKernel func(dst pointer, stride int, tile pointer, tileBytes, tiles int, panel pointer, blocks int)

// floatKernel does the same for a float tile of cols columns.
type floatKernel func(dst pointer, stride int, tile, panel pointer, cols int)

// levels lists the kernel sets that this program has, best first.
var levels []level

// level is a kernel set and whether this CPU can run it.
type level struct {
	kernels *kernelSet
	usable  func() bool
}

// aliases are other names of levels.
var aliases = map[string]string{"avx512": "avx512vnni"}

// Levels returns the names of the kernel levels that this CPU can run, best
// first. The last is "generic".
func Levels() []string {
	var names []string
	for _, l := range levels {
		if l.usable() {
			names = append(names, l.kernels.name)
		}
	}
	return names
}

// levelNamed returns a kernel set by name, "" being the best.
func levelNamed(name string) (*kernelSet, error) {
	if full, ok := aliases[name]; ok {
		name = full
	}
	for _, l := range levels {
		if name == "" && l.usable() {
			return l.kernels, nil
		}
		if name == l.kernels.name {
			if !l.usable() {
				return nil, fmt.Errorf("cpu: this CPU cannot run level %q, it has %q", name, Levels())
			}
			return l.kernels, nil
		}
	}
	return nil, fmt.Errorf("cpu: unknown level %q, want one of %q", name, Levels())
}
