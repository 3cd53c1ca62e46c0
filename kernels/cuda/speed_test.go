//go:build cuda

package cuda

import (
	"fmt"
	"testing"
	"time"

	"waybill/kernels"
)

// TestProductTimes prints what src/stream.cu, src/wide.cu and cuBLASLt take for the products of the Qwen3 shapes, in µs.
// Weights take turns, so that none is in the cache.
func TestProductTimes(t *testing.T) {
	b := openFor(t)
	for _, shape := range []struct {
		name string
		n, k int
	}{
		{"8B qkv", 6144, 4096}, {"8B o", 4096, 4096}, {"8B gate_up", 24576, 4096}, {"8B down", 4096, 12288}, {"8B head", 151936, 4096},
		{"0.6B qkv", 4096, 1024}, {"0.6B o", 1024, 2048}, {"0.6B gate_up", 6144, 1024}, {"0.6B down", 1024, 3072}, {"0.6B head", 151936, 1024},
	} {
		bytes := int64(shape.n) * int64(shape.k) * 2
		var weights []kernels.Weight
		for i := range max(2, min(24, int(400<<20/bytes))) {
			w, err := b.Pack(kernels.HostTensor{Name: fmt.Sprint(i), DType: kernels.BF16, Rows: shape.n, Cols: shape.k,
				Fill: &kernels.Fill{State: uint64(i), Spread: 0.02}})
			if err != nil {
				t.Fatal(err)
			}
			weights = append(weights, w)
		}
		const many = 2048
		x, _ := b.NewBuffer(many * shape.k)
		y, err := b.NewBuffer(many * shape.n)
		if err != nil {
			t.Fatal(err)
		}
		b.madeUp(t, x, weights[0], many)
		line := fmt.Sprintf("%-12s", shape.name)
		for _, rows := range []int{1, 8, 16, 32, maxWideRows} {
			line += fmt.Sprintf(" %d rows:", rows)
			b.wideAbove, b.wideMax, b.wideBytes = 0, 0, bytes
			if rows <= maxStreamRows {
				b.streamMax, b.streamSmall = rows, rows
				line += fmt.Sprintf(" %.1f,", b.productTime(t, weights, x, y, rows))
			}
			b.streamMax, b.streamSmall, b.wideMax = 0, 0, maxWideRows
			line += fmt.Sprintf(" wide %.1f,", b.productTime(t, weights, x, y, rows))
			b.wideMax = 0
			line += fmt.Sprintf(" lt %.1f |", b.productTime(t, weights, x, y, rows))
		}
		for _, rows := range []int{1024, many} {
			took := b.productTime(t, weights, x, y, rows)
			line += fmt.Sprintf(" %d rows %7.1f (%.0f TFLOP/s) |", rows, took, 2*float64(rows)*float64(shape.n)*float64(shape.k)/took/1e6)
		}
		t.Log(line)
	}
}

// TestMatrixRate prints the rate of one large product, which prefill is held against.
func TestMatrixRate(t *testing.T) {
	b := openFor(t)
	const n = 8192
	weights := make([]kernels.Weight, 2)
	for i := range weights {
		var err error
		if weights[i], err = b.Pack(kernels.HostTensor{Name: "w", DType: kernels.BF16, Rows: n, Cols: n,
			Fill: &kernels.Fill{State: uint64(i), Spread: 0.02}}); err != nil {
			t.Fatal(err)
		}
	}
	x, _ := b.NewBuffer(n * n)
	y, err := b.NewBuffer(n * n)
	if err != nil {
		t.Fatal(err)
	}
	b.madeUp(t, x, weights[1], n)
	b.productTime(t, weights, x, y, n) // the clock settles
	t.Logf("matrix rate %.0f TFLOP/s", 2*float64(n)*n*n/b.productTime(t, weights, x, y, n)/1e6)
}

// madeUp fills rows of x with those of w: zeros would be multiplied faster.
func (b *Backend) madeUp(t *testing.T, x kernels.Buffer, w kernels.Weight, rows int) {
	ids := make([]int32, rows)
	for i := range ids {
		ids[i] = int32(i % w.Rows())
	}
	b.Begin(&kernels.Batch{Tokens: ids, Positions: ids, Slots: ids})
	b.Embed(x, w)
	if err := b.End(); err != nil {
		t.Fatal(err)
	}
}

// productTime returns the best mean time of a product in µs.
func (b *Backend) productTime(t *testing.T, weights []kernels.Weight, x, y kernels.Buffer, rows int) float64 {
	const rounds = 48
	forward := func(*kernels.Batch) kernels.Buffer {
		for i := range rounds {
			b.MatMul(y, x, weights[i%len(weights)], nil, rows)
		}
		return nil
	}
	best := time.Hour
	for range 4 {
		if err := b.Start(&kernels.Batch{}, forward); err != nil {
			t.Fatal(err)
		}
		times, err := b.Finish(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		best = min(best, (times.Ended-times.Started)/rounds)
	}
	return float64(best) / 1e3
}
