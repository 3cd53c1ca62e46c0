package cpu

import (
	"math"
	"testing"

	"waybill/kernels"
)

// TestNarrowingAgrees compares each level's rounding with the plain one on all
// upper halves of a float32 and the lower halves around a tie.
func TestNarrowingAgrees(t *testing.T) {
	var src []float32
	for i := range 1 << 16 {
		for _, low := range []uint32{0, 1, 0x7fff, 0x8000, 0x8001, 0x1000, 0x3000, 0xffff} {
			src = append(src, math.Float32frombits(uint32(i)<<16|low))
		}
	}
	want, got := make([]uint16, len(src)), make([]uint16, len(src))
	for _, l := range levels {
		for _, d := range []kernels.DType{kernels.F16, kernels.BF16} {
			if !l.usable() {
				continue
			}
			narrow(want, src, d)
			l.kernels.narrow(got, src, d)
			for i, v := range src {
				if v != v {
					if f := widen(got[i], d); f == f {
						t.Fatalf("%s: NaN %#08x became %v %#04x", l.kernels.name, math.Float32bits(v), d, got[i])
					}
				} else if got[i] != want[i] {
					t.Fatalf("%s: %v of %v is %#04x, want %#04x", l.kernels.name, d, v, got[i], want[i])
				}
			}
		}
	}
}
