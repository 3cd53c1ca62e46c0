//go:build cuda

package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"waybill/kernels"
)

// TestKernelsStreamLarge checks that the kernels of src/stream.cu for large weights give the bits of those for small
// ones, which the oracle's tests meet: alone and with the ops that they do too, at widths that fill neither's ring, or
// only a part of the last round. A large weight would take the oracle too long.
func TestKernelsStreamLarge(t *testing.T) {
	b := openFor(t)
	b.streamMax, b.wideMax = maxStreamRows, 0
	rng := rand.New(rand.NewPCG(11, 12))
	normal := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(rng.NormFloat64())
		}
		return v
	}
	upload := func(v []float32) kernels.Buffer {
		buf, err := b.Upload(v)
		if err != nil {
			t.Fatal(err)
		}
		return buf
	}
	for _, size := range [][2]int{{32, 32}, {64, 288}, {608, 1056}, {96, 4096}, {3200, 512}} {
		n, k := size[0], size[1]
		packed, err := b.Pack(kernels.HostTensor{Name: "w", DType: kernels.BF16, Rows: n, Cols: k,
			Fill: &kernels.Fill{State: uint64(n), Spread: math.Sqrt(3 / float64(k))}})
		if err != nil {
			t.Fatal(err)
		}
		for _, rows := range []int{1, 3, 8, 9, 16} {
			x, bias, norm, start := upload(normal(rows*k)), upload(normal(n)), upload(normal(n)), normal(rows*n)
			// run does every kind of product once.
			run := func(smallBytes int64) (results [][]float32) {
				b.smallBytes = smallBytes
				var dst [5]kernels.Buffer
				for i := range dst {
					dst[i] = upload(make([]float32, rows*n))
				}
				logits, err := b.NewFloats(rows * n)
				if err != nil {
					t.Fatal(err)
				}
				residual := upload(start)
				b.Begin(&kernels.Batch{})
				b.MatMul(dst[0], x, packed, bias, rows)
				b.MatMul(logits, x, packed, nil, rows)
				b.MatMul(dst[1], x, packed, nil, rows)
				b.SiLUMul(dst[2], dst[1], rows, n/2)
				b.MatMul(dst[3], x, packed, nil, rows)
				b.AddRMSNorm(dst[4], residual, dst[3], norm, rows, n, 1e-6)
				if err := b.End(); err != nil {
					t.Fatal(err)
				}
				for _, buf := range []kernels.Buffer{dst[0], logits, dst[2], residual, dst[4]} {
					values := make([]float32, rows*n)
					if buf == dst[2] {
						values = values[:rows*n/2]
					}
					b.Read(values, buf)
					results = append(results, values)
				}
				return results
			}
			large, small := run(0), run(math.MaxInt64)
			for i, what := range []string{"with bias", "logits", "gated", "residual", "norm"} {
				if err := differs(large[i], small[i]); err != "" {
					t.Errorf("%v, %d rows, %s: %s", size, rows, what, err)
				}
			}
		}
	}
}

// differs says where two results differ, or that they are nothing but zeros.
func differs(got, want []float32) string {
	zeros := true
	for i, v := range got {
		if math.Float32bits(v) != math.Float32bits(want[i]) {
			return fmt.Sprintf("element %d is %v, want %v", i, v, want[i])
		}
		zeros = zeros && v == 0
	}
	if zeros {
		return "all zeros"
	}
	return ""
}
