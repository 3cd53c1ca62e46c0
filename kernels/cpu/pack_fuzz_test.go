package cpu

import (
	"math"
	"testing"

	"waybill/kernels"
	"waybill/kernels/quant"
)

// FuzzPack packs tensors of any bytes and looks every element up again: with both
// kinds of arithmetic it must be what the file says, bit for bit, in the place
// that the row order gives it. Every level's unpacking must agree with the plain
// one.
func FuzzPack(f *testing.F) {
	for d := kernels.F32; d.Valid(); d++ {
		f.Add(byte(d), byte(5), byte(1), byte(0), []byte("\x00\x3c\x01\x80\xff\x7f\x99\x12"))
		f.Add(byte(d), byte(33), byte(2), byte(7), []byte{1, 2, 3, 0xfc, 0x7c, 0xab})
	}
	f.Fuzz(func(t *testing.T, kind, rows, blocks, order byte, data []byte) {
		d := kernels.DType(kind)
		if !d.Valid() || len(data) == 0 {
			t.Skip("not a tensor")
		}
		h := kernels.HostTensor{Name: "w", DType: d, Rows: int(rows)%40 + 1, Cols: (int(blocks)%4 + 1) * d.BlockElems()}
		h.Data = make([]byte, h.Rows*d.RowBytes(h.Cols))
		for i := range h.Data {
			h.Data[i] = data[i%len(data)] + byte(i/len(data))
		}
		if order > 0 {
			for r := range h.Rows + int(order)%5 {
				h.RowOrder = append(h.RowOrder, int32(r*int(order)%h.Rows))
			}
		}
		for _, m := range []Math{Int8, F32} {
			var from weightMemory
			w, err := newWeight([]kernels.HostTensor{h}, m, &from)
			if err != nil {
				t.Fatal(err)
			}
			want, got := make([]float32, h.Cols), make([]float32, h.Cols)
			for r := range w.rows {
				quant.Dequantize(want, d, h.SourceRow(r))
				w.row(got, r)
				for i, v := range want {
					if math.Float32bits(got[i]) != math.Float32bits(v) && !(v != v && got[i] != got[i]) {
						t.Fatalf("%v, %v: row %d, element %d is %v, want %v", d, m, r, i, got[i], v)
					}
				}
			}
			comparePlain(t, w, h.Cols/quantElems)
			if err := from.close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// comparePlain unpacks every tile with every level's code and with the plain one.
func comparePlain(t *testing.T, w *weight, blocks int) {
	s := &w.segments[0]
	if !s.format.quantized() {
		return
	}
	want, got := make([]byte, blocks*quantTile), make([]byte, blocks*quantTile)
	for i := range tilesOf(s.rows) {
		s.format.unpackQuants(want, s.tile(i), blocks)
		for _, l := range levels {
			unpack := l.kernels.unpackQuants[s.format]
			if unpack == nil || !l.usable() {
				continue
			}
			unpack(pointer(&got[0]), pointer(&s.tile(i)[0]), blocks)
			for k, v := range want {
				if got[k] != v {
					t.Fatalf("%s: format %d, tile %d, byte %d is %d, want %d", l.kernels.name, s.format, i, k, got[k], v)
				}
			}
		}
	}
}
