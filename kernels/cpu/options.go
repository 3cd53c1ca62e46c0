package cpu

import "fmt"

// Math says what arithmetic a matrix product uses.
type Math uint8

const (
	// Int8 rounds activations to int8 per block of 32 along K where the weight
	// is quantized. Float weights keep float32 activations.
	Int8 Math = iota
	// F32 dequantizes every weight to float32 when it is packed.
	F32
)

// String returns the flag's value for m.
func (m Math) String() string {
	switch m {
	case Int8:
		return "int8"
	case F32:
		return "f32"
	}
	return fmt.Sprintf("Math(%d)", uint8(m))
}

// ParseMath reads "int8" or "f32".
func ParseMath(s string) (Math, error) {
	switch s {
	case "int8":
		return Int8, nil
	case "f32":
		return F32, nil
	}
	return 0, fmt.Errorf("cpu: math is %q, want int8 or f32", s)
}

// Options says how a Backend works.
type Options struct {
	// Threads is the number of compute threads, the caller's included; 0 takes
	// one for each core.
	Threads int
	// Math is the arithmetic of matrix products.
	Math Math
	// Level forces a kernel level; "" takes the best that this CPU has.
	Level string
}
