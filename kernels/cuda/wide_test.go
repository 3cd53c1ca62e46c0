//go:build cuda

package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"gorgonia.org/cu"

	"waybill/kernels"
	"waybill/kernels/quant"
)

// TestKernelsWide holds every kernel of src/wide.cu against sums in float64, at sizes that end within tiles and with
// fewer steps than stages, looks behind the results, and does each product twice: with other values in all rows but one,
// that row has the same bits.
//
// A sum is off by deep/32+40 roundings of the sum of its terms' magnitudes, as in kerneltest, and one more of each that
// is added to it; what the norm makes of its squares by their relative error, which is at most twice the residual's
// largest over the root mean square.
func TestKernelsWide(t *testing.T) {
	b := hopper(t)
	for _, size := range [][2]int{{32, 64}, {96, 192}, {160, 320}, {64, 16384}, {1024, 2048}, {4160, 640}, {9248, 128}, {17056, 192}} {
		for _, rows := range []int{1, 9, 16, 17, 31, 33, 48, 50, 64} {
			c := newWideCase(t, b, rows, size[0], size[1])
			for mode := range streamModes {
				c.check(t, mode)
			}
		}
	}
}

// wideCase is a product of made-up numbers.
type wideCase struct {
	b              *Backend
	rows, n, k     int
	x, w           []float32
	bias, norm     []float32
	residual       []float32
	squares        []float64 // of each row that x is normed by
	weight         *weight
	rng            *rand.Rand
	biasAt, normAt *buffer
}

func newWideCase(t *testing.T, b *Backend, rows, n, k int) *wideCase {
	c := &wideCase{b: b, rows: rows, n: n, k: k, rng: rand.New(rand.NewPCG(uint64(n+rows), uint64(k)))}
	rng := c.rng
	c.x, c.w, c.residual = make([]float32, rows*k), make([]float32, n*k), make([]float32, rows*n)
	c.bias, c.norm, c.squares = make([]float32, n), make([]float32, n), make([]float64, rows)
	data := make([]byte, 2*len(c.w))
	for i := range c.w {
		bits := quant.F32ToBF16(float32(rng.NormFloat64() / math.Sqrt(float64(k))))
		c.w[i], data[2*i], data[2*i+1] = quant.BF16ToF32(bits), byte(bits), byte(bits>>8)
	}
	for i := range c.residual {
		c.residual[i] = float32(rng.NormFloat64())
	}
	for i := range n {
		c.bias[i], c.norm[i] = float32(rng.NormFloat64()), float32(1+rng.Float64())
	}
	for r := range rows {
		c.squares[r] = float64(k) * (0.5 + rng.Float64())
		c.fill(r)
	}
	w, err := b.Pack(kernels.HostTensor{Name: "w", DType: kernels.BF16, Rows: n, Cols: k, Data: data})
	if err != nil {
		t.Fatal(err)
	}
	c.weight = w.(*weight)
	c.biasAt, c.normAt = c.upload(t, c.bias), c.upload(t, c.norm)
	return c
}

// fill makes new values of a row of x.
func (c *wideCase) fill(row int) {
	for i := row * c.k; i < (row+1)*c.k; i++ {
		c.x[i] = quant.BF16ToF32(quant.F32ToBF16(float32(c.rng.NormFloat64())))
	}
}

func (c *wideCase) upload(t *testing.T, v []float32) *buffer {
	buf, err := c.b.Upload(v)
	if err != nil {
		t.Fatal(err)
	}
	return buf.(*buffer)
}

// write and read copy sums of squares, in turn with what is queued.
func (c *wideCase) write(t *testing.T, at cu.DevicePtr, v []uint64) {
	if err := cu.MemcpyHtoDAsync(at, unsafe.Pointer(&v[0]), int64(8*len(v)), c.b.stream); err != nil {
		t.Fatal(err)
	}
	if err := c.b.stream.Synchronize(); err != nil {
		t.Fatal(err)
	}
}

func (c *wideCase) read(t *testing.T, v []uint64, at cu.DevicePtr) {
	if err := c.b.stream.Synchronize(); err != nil {
		t.Fatal(err)
	}
	if err := cu.MemcpyDtoH(unsafe.Pointer(&v[0]), at, int64(8*len(v))); err != nil {
		t.Fatal(err)
	}
}

// wideResult is what a product left behind: y, a row more than it has, the residual, and the sums of squares.
type wideResult struct {
	y, residual []float32
	sums        []uint64
}

func (c *wideCase) run(t *testing.T, mode int) wideResult {
	cols := c.n
	if mode == streamGated {
		cols /= 2
	}
	in := c.upload(t, c.x)
	was := make([]float32, (c.rows+1)*cols)
	for i := range was {
		was[i] = float32(i%7) - 3
	}
	out, res := c.upload(t, was), c.upload(t, append(c.residual[:len(c.residual):len(c.residual)], c.bias...))
	fixed := make([]uint64, maxWideRows)
	for r, s := range c.squares {
		fixed[r] = uint64(s * (1 << 24))
	}
	s := &c.b.steps
	slot := func(i int) cu.DevicePtr { return s.sums + cu.DevicePtr(8*maxWideRows*i) }
	p := &product{x: in, w: c.weight, rows: c.rows}
	var f follow
	y := out.bf16
	switch mode {
	case streamFloat:
		p.bias, y = c.biasAt, out.float
	case streamPlain:
		p.bias = c.biasAt
	case streamResidual:
		f = follow{residual: res.float, norm: c.normAt.float, sums: slot(1), zero: slot(2)}
	}
	if mode != streamResidual {
		in.sums, in.eps = slot(0), 1e-6
	}
	c.b.Begin(&kernels.Batch{}) // clears the sums
	c.write(t, slot(0), fixed)
	c.write(t, slot(2), fixed)
	c.b.queueWide(mode, p, y, f)
	r := wideResult{y: make([]float32, len(was)), residual: make([]float32, c.rows*c.n+c.n), sums: make([]uint64, maxWideRows)}
	cleared := make([]uint64, c.rows)
	c.read(t, r.sums, slot(1))
	c.read(t, cleared, slot(2))
	if err := c.b.End(); err != nil {
		t.Fatal(err)
	}
	out.bf16, out.float = y, 0
	if mode == streamFloat {
		out.bf16, out.float = 0, y
	}
	c.b.Read(r.y, out)
	res.bf16 = 0
	c.b.Read(r.residual, res)
	for i := c.rows * cols; i < len(was); i++ {
		if r.y[i] != was[i] {
			t.Fatalf("%s: element %d behind the result is %v", c.name(mode), i-c.rows*cols, r.y[i])
		}
	}
	if mode == streamResidual {
		for i, want := range c.bias {
			if got := r.residual[c.rows*c.n+i]; got != want {
				t.Fatalf("%s: element %d behind the residual is %v", c.name(mode), i, got)
			}
		}
		for row, v := range cleared {
			if v != 0 {
				t.Fatalf("%s: the next sum of row %d is %d, not cleared", c.name(mode), row, v)
			}
		}
	}
	return r
}

func (c *wideCase) name(mode int) string {
	return fmt.Sprintf("%s, %d rows, [%d, %d], %+v", modeNames[mode], c.rows, c.n, c.k, wideShapeOf(c.rows, c.n, c.k, c.b.sms))
}

func (c *wideCase) check(t *testing.T, mode int) {
	const u, store = 0x1p-24, 0x1p-8
	got := c.run(t, mode)
	roundings := (float64(c.k)/32 + 41) * u
	dot := func(r, n int) (sum, size float64) {
		for i := range c.k {
			v := float64(c.x[r*c.k+i]) * float64(c.w[n*c.k+i])
			sum, size = sum+v, size+math.Abs(v)
		}
		return sum, size
	}
	cols := c.n
	if mode == streamGated {
		cols /= 2
	}
	for i := range max(600, 4*c.rows) {
		r, n := c.rng.IntN(c.rows), c.rng.IntN(cols)
		switch i % 4 {
		case 0:
			r, n = c.rows-1, cols-1-c.rng.IntN(3)
		case 1:
			n = n / wideTile * wideTile
		case 2:
			r = i / 4 % c.rows
		}
		f := 1 / math.Sqrt(c.squares[r]/float64(c.k)+1e-6)
		sum, size := dot(r, n)
		v := float64(got.y[r*cols+n])
		var want, bound float64
		switch mode {
		case streamPlain, streamFloat:
			want = sum*f + float64(c.bias[n])
			bound = roundings * (size*f + math.Abs(float64(c.bias[n])))
			if mode == streamPlain {
				bound += store * math.Abs(want)
			}
		case streamGated:
			up, upSize := dot(r, c.n/2+n)
			gate, gateSize := sum*f, size*f
			up, upSize = up*f, upSize*f
			act := gate / (1 + math.Exp(-gate))
			want = act * up
			bound = roundings*(1.1*gateSize*math.Abs(up)+math.Abs(act)*upSize) + (store+16*u)*math.Abs(want)
		case streamResidual:
			old, w := float64(c.residual[r*c.n+n]), float64(c.norm[n])
			sum += old
			off := roundings * (size + math.Abs(old))
			if v := float64(got.residual[r*c.n+n]); !(math.Abs(v-sum) <= off) {
				t.Fatalf("%s: residual [%d, %d] is %v, want %v within %v", c.name(mode), r, n, v, sum, off)
			}
			want, bound = sum*w, off*w+(store+2*u)*math.Abs(sum*w)
		}
		if !(math.Abs(v-want) <= bound) {
			t.Fatalf("%s: element [%d, %d] is %v, want %v within %v", c.name(mode), r, n, v, want, bound)
		}
	}
	if mode == streamResidual {
		c.checkSquares(t, got)
	}
	// Other company for one row.
	keep := c.rng.IntN(c.rows)
	was := append([]float32(nil), c.x...)
	for r := range c.rows {
		if r != keep {
			c.fill(r)
		}
	}
	other := c.run(t, mode)
	for n := range cols {
		if a, b := got.y[keep*cols+n], other.y[keep*cols+n]; math.Float32bits(a) != math.Float32bits(b) {
			t.Fatalf("%s: element [%d, %d] is %v, and %v in other company", c.name(mode), keep, n, a, b)
		}
	}
	if mode == streamResidual && got.sums[keep] != other.sums[keep] {
		t.Fatalf("%s: the squares of row %d are %d, and %d in other company", c.name(mode), keep, got.sums[keep], other.sums[keep])
	}
	copy(c.x, was)
}

// checkSquares compares the sums of squares with those of the residual that was left: n/8 roundings of float32, and half
// a unit of fixed point for each part.
func (c *wideCase) checkSquares(t *testing.T, got wideResult) {
	for r := range c.rows {
		want := 0.0
		for _, v := range got.residual[r*c.n : (r+1)*c.n] {
			want += float64(v) * float64(v)
		}
		bound := want*0x1p-24*(float64(c.n)/8+8) + float64(c.n)*0x1p-25
		if v := float64(got.sums[r]) / (1 << 24); !(math.Abs(v-want) <= bound) {
			t.Fatalf("%s: the squares of row %d add up to %v, want %v within %v", c.name(streamResidual), r, v, want, bound)
		}
	}
}

// TestHostWideShapes looks at how products of the shapes that count, and of small ones, are shared out.
func TestHostWideShapes(t *testing.T) {
	for _, c := range []struct {
		name          string
		rows, n, k    int
		split, blocks int
		least, most   int // bytes of shared memory
	}{
		{"8B qkv", 32, 6144, 4096, 2, 192, 90 << 10, wideRing},
		{"8B o", 32, 4096, 4096, 2, 128, 90 << 10, wideRing},
		{"8B gate and up", 32, 24576, 4096, 1, 384, 50 << 10, wideManyRing},
		{"8B down", 64, 4096, 12288, 2, 128, 130 << 10, wideLongRing},
		{"0.6B o", 16, 1024, 2048, 4, 64, 90 << 10, wideRing},
		{"one tile, one step", 9, 32, 64, 1, 1, 0, wideRing},
		{"one tile, three steps", 9, 64, 192, 2, 2, 0, wideRing},
	} {
		s := wideShapeOf(c.rows, c.n, c.k, 132)
		if wideRows[s.rows] < c.rows || wideSplits[s.split] != c.split || s.blocks != c.blocks || s.shared < c.least || s.shared > c.most ||
			s.stages < 2 || s.stages > wideMostStages {
			t.Errorf("%s: %+v, want a split of %d, %d blocks, %d to %d bytes", c.name, s, c.split, c.blocks, c.least, c.most)
		}
	}
}

// TestHostWideShapesOfModels looks at every product that src/wide.cu takes of the models that this program is for: what a
// block holds must fit, and each must have something of k.
func TestHostWideShapesOfModels(t *testing.T) {
	const (
		mostShared = 227 << 10                                                // of a block
		static     = 4*maxWideRows + 4*4*maxWideRows + 8*(2*wideMostStages+1) // of src/wide.cu
	)
	taken := 0
	for _, m := range []struct {
		name                                 string
		hidden, inner, heads, kvHeads, width int
	}{
		{"Llama-3.2-1B", 2048, 8192, 32, 8, 64},
		{"Llama-3.2-3B", 3072, 8192, 24, 8, 128},
		{"Llama-3.1-8B", 4096, 14336, 32, 8, 128},
		{"Llama-3.1-70B", 8192, 28672, 64, 8, 128},
		{"SmolLM2-135M", 576, 1536, 9, 3, 64},
		{"Qwen2.5-0.5B", 896, 4864, 14, 2, 64},
		{"Qwen2.5-1.5B", 1536, 8960, 12, 2, 128},
		{"Qwen2.5-3B", 2048, 11008, 16, 2, 128},
		{"Qwen2.5-7B", 3584, 18944, 28, 4, 128},
		{"Qwen2.5-14B", 5120, 13824, 40, 8, 128},
		{"Qwen2.5-32B", 5120, 27648, 40, 8, 128},
		{"Qwen2.5-72B", 8192, 29568, 64, 8, 128},
		{"Qwen3-0.6B", 1024, 3072, 16, 8, 128},
		{"Qwen3-1.7B", 2048, 6144, 16, 8, 128},
		{"Qwen3-4B", 2560, 9728, 32, 8, 128},
		{"Qwen3-8B", 4096, 12288, 32, 8, 128},
		{"Qwen3-14B", 5120, 17408, 40, 8, 128},
		{"Qwen3-32B", 5120, 25600, 64, 8, 128},
	} {
		for _, w := range []*weight{
			{rows: (m.heads + 2*m.kvHeads) * m.width, cols: m.hidden},
			{rows: m.hidden, cols: m.heads * m.width},
			{rows: 2 * m.inner, cols: m.hidden},
			{rows: m.hidden, cols: m.inner},
		} {
			for _, sms := range []int{78, 114, 132} { // H20, H100 of PCIe, H200
				for rows := wideAbove + 1; rows <= maxWideRows; rows++ {
					b := &Backend{major: 9, sms: sms, wideAbove: wideAbove, wideMax: maxWideRows, wideBytes: wideBytes}
					if !b.wideTakes(&product{w: w, rows: rows}) {
						continue
					}
					taken++
					s := wideShapeOf(rows, w.rows, w.cols, sms)
					n, split := wideRows[s.rows], wideSplits[s.split]
					columns := (n/8 + split - 1) / split // that a block gets of each other one
					needs := 1023 + s.stages*(wideTile+n)*wideDeep*2 + (split-1)*columns*wideThreads/5*4*16
					tiles := s.blocks / split
					if n < rows || s.blocks%split != 0 || tiles*wideTile < w.rows || (tiles-1)*wideTile >= w.rows || w.cols/wideDeep < split ||
						s.stages < 4 || s.stages > wideMostStages || s.shared < needs || s.shared > wideLongRing || s.shared+static > mostShared {
						t.Fatalf("%s, %d multiprocessors, %d rows, [%d, %d]: %+v, a block needs %d bytes", m.name, sms, rows, w.rows, w.cols, s, needs)
					}
				}
			}
		}
	}
	if taken == 0 {
		t.Error("no product is taken")
	}
}
