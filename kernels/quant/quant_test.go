package quant

import (
	"encoding/binary"
	"math"
	"os"
	"testing"

	"waybill/kernels"
)

// TestDequantizeEqualsReference compares with values made by another
// implementation (testdata/make_blocks.py), bit for bit.
func TestDequantizeEqualsReference(t *testing.T) {
	blocks, err := os.ReadFile("testdata/blocks.bin")
	if err != nil {
		t.Fatal(err)
	}
	values, err := os.ReadFile("testdata/values.bin")
	if err != nil {
		t.Fatal(err)
	}
	const perType = 6 // BLOCKS in the script
	for d := kernels.Q8_0; d.Valid(); d++ {
		got := make([]float32, perType*d.BlockElems())
		n := perType * d.BlockBytes()
		Dequantize(got, d, blocks[:n])
		blocks = blocks[n:]
		for i, v := range got {
			want := math.Float32frombits(binary.LittleEndian.Uint32(values[4*i:]))
			if v != want {
				t.Fatalf("%v element %d: got %v, want %v", d, i, v, want)
			}
		}
		values = values[4*len(got):]
	}
	if len(blocks) != 0 || len(values) != 0 {
		t.Fatalf("testdata left over: %d bytes of blocks, %d of values", len(blocks), len(values))
	}
}

// TestDequantizeByHand checks blocks whose values are derived here from the
// format's definition: d = 2 (0x4000), m = -1 (0xbc00).
func TestDequantizeByHand(t *testing.T) {
	nibbles := make([]byte, 16)
	nibbles[0], nibbles[15] = 0xf1, 0x08 // elements 0, 16 and 15, 31
	fifth := []byte{0x01, 0, 0, 0x80}    // elements 0 and 31
	q8 := make([]byte, 32)
	q8[0], q8[31] = 0x80, 0x7f
	d, m := []byte{0x00, 0x40}, []byte{0x00, 0xbc}

	check := func(dt kernels.DType, at map[int]float32, parts ...[]byte) {
		t.Helper()
		var src []byte
		for _, p := range parts {
			src = append(src, p...)
		}
		dst := make([]float32, 32)
		Dequantize(dst, dt, src)
		for i, want := range at {
			if dst[i] != want {
				t.Errorf("%v element %d: got %v, want %v", dt, i, dst[i], want)
			}
		}
	}
	check(kernels.Q8_0, map[int]float32{0: -256, 1: 0, 31: 254}, d, q8)
	check(kernels.Q4_0, map[int]float32{0: -14, 1: -16, 15: 0, 16: 14, 31: -16}, d, nibbles)
	check(kernels.Q4_1, map[int]float32{0: 1, 1: -1, 15: 15, 16: 29, 31: -1}, d, m, nibbles)
	check(kernels.Q5_0, map[int]float32{0: 2, 1: -32, 15: -16, 16: -2, 31: 0}, d, fifth, nibbles)
	check(kernels.Q5_1, map[int]float32{0: 33, 1: -1, 15: 15, 16: 29, 31: 31}, d, m, fifth, nibbles)
}

func TestHalvesSurviveTheRoundTrip(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		f := F16ToF32(h)
		if math.IsNaN(float64(f)) {
			if back := F16ToF32(F32ToF16(f)); !math.IsNaN(float64(back)) {
				t.Fatalf("f16 %#04x: NaN became %v", h, back)
			}
		} else if back := F32ToF16(f); back != h {
			t.Fatalf("f16 %#04x: %v became %#04x", h, f, back)
		}
		b := BF16ToF32(h)
		if math.IsNaN(float64(b)) {
			if back := BF16ToF32(F32ToBF16(b)); !math.IsNaN(float64(back)) {
				t.Fatalf("bf16 %#04x: NaN became %v", h, back)
			}
		} else if back := F32ToBF16(b); back != h {
			t.Fatalf("bf16 %#04x: %v became %#04x", h, b, back)
		}
	}
}

func TestNarrowingRoundsToNearestEven(t *testing.T) {
	for _, c := range []struct {
		in   float32
		want uint16
	}{
		{1 + 0x1p-11, 0x3c00},           // halfway between 0x3c00 and 0x3c01
		{1 + 3*0x1p-11, 0x3c02},         // halfway between 0x3c01 and 0x3c02
		{1 + 0x1p-11 + 0x1p-20, 0x3c01}, // above halfway
		{65519, 0x7bff}, {65520, 0x7c00}, {1e10, 0x7c00},
		{0x1p-24, 1}, {0x1p-25, 0}, {3 * 0x1p-25, 2}, {-0x1p-25, 0x8000},
		{float32(math.Inf(-1)), 0xfc00},
	} {
		if got := F32ToF16(c.in); got != c.want {
			t.Errorf("F32ToF16(%v) = %#04x, want %#04x", c.in, got, c.want)
		}
	}
	for _, c := range []struct {
		in   float32
		want uint16
	}{
		{1 + 0x1p-8, 0x3f80}, {1 + 3*0x1p-8, 0x3f82}, {1 + 0x1p-8 + 0x1p-20, 0x3f81},
		{math.MaxFloat32, 0x7f80},
	} {
		if got := F32ToBF16(c.in); got != c.want {
			t.Errorf("F32ToBF16(%v) = %#04x, want %#04x", c.in, got, c.want)
		}
	}
}
