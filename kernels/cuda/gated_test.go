//go:build cuda

package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"waybill/kernels"
	"waybill/kernels/quant"
)

// TestKernelsGated holds src/gated.cu against sums in float64, at sizes that end within tiles in every direction, and
// looks behind the result. A sum is off by deep/32+40 roundings of the sum of its terms' magnitudes, as in kerneltest;
// the slope of the activation is at most 1.1, its own exponential and division are off by some 16 roundings.
func TestKernelsGated(t *testing.T) {
	b := hopper(t)
	for _, size := range [][3]int{{1, 128, 64}, {130, 136, 200}, {300, 4096, 512}, {513, 1000, 72}, {577, 3072, 1024}, {640, 1000, 128}, {1084, 12288, 64}, {2305, 1504, 136}, {4500, 1040, 64}} {
		rows, cols, deep := size[0], size[1], size[2]
		rng := rand.New(rand.NewPCG(uint64(rows), uint64(deep)))
		x, w := make([]float32, rows*deep), make([]float32, 2*cols*deep)
		data := make([]byte, 2*len(w))
		for i := range x {
			x[i] = quant.BF16ToF32(quant.F32ToBF16(float32(rng.NormFloat64())))
		}
		for i := range w {
			bits := quant.F32ToBF16(float32(rng.NormFloat64() / math.Sqrt(float64(deep))))
			w[i], data[2*i], data[2*i+1] = quant.BF16ToF32(bits), byte(bits), byte(bits>>8)
		}
		both, err := b.Pack(kernels.HostTensor{Name: "w", DType: kernels.BF16, Rows: 2 * cols, Cols: deep, Data: data})
		if err != nil {
			t.Fatal(err)
		}
		in, err := b.Upload(x)
		if err != nil {
			t.Fatal(err)
		}
		was := make([]float32, rows*cols+2*cols)
		for i := range was {
			was[i] = float32(i%7) - 3
		}
		dot := func(r, row int) (sum, size float64) {
			for k := range deep {
				v := float64(x[r*deep+k]) * float64(w[row*deep+k])
				sum, size = sum+v, size+math.Abs(v)
			}
			return sum, size
		}
		out, err := b.Upload(was)
		if err != nil {
			t.Fatal(err)
		}
		y := out.(*buffer)
		y.float = 0 // Read takes the other
		b.Begin(&kernels.Batch{})
		b.queueGated(&product{x: in.(*buffer), y: y.bf16, w: both.(*weight), rows: rows})
		if err := b.End(); err != nil {
			t.Fatal(err)
		}
		got := make([]float32, len(was))
		b.Read(got, y)
		for i := rows * cols; i < len(was); i++ {
			if got[i] != was[i] {
				t.Fatalf("%v: element %d behind the result is %v", size, i-rows*cols, got[i])
			}
		}
		const u = 0x1p-24
		n := float64(deep)/32 + 40
		for k := range max(6000, 4*rows) {
			r, c := rng.IntN(rows), rng.IntN(cols)
			switch k % 4 {
			case 0: // the result's corners
				r, c = rows-1-rng.IntN(min(rows, 3)), cols-1-rng.IntN(3)
			case 1: // tiles' corners
				r, c = min(rows-1, r/64*64), min(cols-1, c/gatedCols*gatedCols)
			case 2: // every row
				r = k / 4 % rows
			}
			gate, gateSize := dot(r, c)
			up, upSize := dot(r, cols+c)
			act := gate / (1 + math.Exp(-gate))
			want := act * up
			bound := n*u*(1.1*gateSize*math.Abs(up)+math.Abs(act)*upSize) + (0x1p-8+16*u)*math.Abs(want)
			if v := float64(got[r*cols+c]); !(math.Abs(v-want) <= bound) {
				t.Fatalf("%v: element [%d, %d] is %v, want %v within %v", size, r, c, v, want, bound)
			}
		}
	}
}

// TestGatedTimes prints what src/gated.cu, and cuBLASLt and the activation take, in turns, in µs, and how well the
// former fills the multiprocessors.
func TestGatedTimes(t *testing.T) {
	for _, shape := range []struct {
		name              string
		cols, deep, count int
	}{{"8B", 24576, 4096, 4}, {"0.6B", 6144, 1024, 16}} {
		b := hopper(t)
		const most = 8192
		var weights []kernels.Weight
		for i := range shape.count {
			w, err := b.Pack(kernels.HostTensor{Name: fmt.Sprint(i), DType: kernels.BF16, Rows: shape.cols, Cols: shape.deep,
				Fill: &kernels.Fill{State: uint64(i), Spread: 0.02}})
			if err != nil {
				t.Fatal(err)
			}
			weights = append(weights, w)
		}
		var buffers [3]kernels.Buffer
		for i, n := range []int{shape.deep, shape.cols, shape.cols / 2} {
			var err error
			if buffers[i], err = b.NewBuffer(most * n); err != nil {
				t.Fatal(err)
			}
		}
		x, both, y := buffers[0], buffers[1], buffers[2]
		b.madeUp(t, x, weights[0], most)
		for _, rows := range []int{128, 256, 512, 768, 1024, 1054, 1280, 1536, 2048, 2064, 2110, 2176, 2218, 2304, 3072, 4096, most} {
			forward := func(*kernels.Batch) kernels.Buffer {
				for i := range 24 {
					b.MatMul(both, x, weights[i%len(weights)], nil, rows)
					b.SiLUMul(y, both, rows, shape.cols/2)
				}
				return nil
			}
			const turns = 10
			var took [2]float64
			for turn := range turns {
				b.gatedShare = []float64{3, 1e-9}[turn%2]
				if err := b.Start(&kernels.Batch{}, forward); err != nil {
					t.Fatal(err)
				}
				times, err := b.Finish(nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				if turn >= 2 { // the first ones load code
					took[turn%2] += float64(times.Ended-times.Started) / 24e3 / (turns/2 - 1)
				}
			}
			b.gatedShare = gatedShare
			p := &product{rows: rows, w: weights[0].(*weight)}
			t.Logf("%-4s %4d rows: cuBLASLt %7.1f, gated %7.1f (%.3f), filled %.3f, taken %v, %.0f TFLOP/s", shape.name, rows, took[0], took[1],
				took[1]/took[0], tilingOf(p).filled(b.sms/2), b.tiled(p), 2*float64(rows)*float64(shape.cols)*float64(shape.deep)/took[1]/1e6)
		}
	}
}

// hopper opens a device of compute capability 9.0.
func hopper(t *testing.T) *Backend {
	b := openFor(t)
	if b.major != 9 {
		t.Skip("compute capability 9.0 only")
	}
	return b
}
