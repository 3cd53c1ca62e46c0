package kerneltest

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"waybill/kernels"
)

// pack packs parts or ends the test.
func pack(t testing.TB, b kernels.Backend, parts ...kernels.HostTensor) kernels.Weight {
	t.Helper()
	w, err := b.Pack(parts...)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// columnsOf returns widths to try for a type: one block, an odd number of blocks,
// and for floats widths that no vector divides.
func columnsOf(d kernels.DType) []int {
	if !d.Quantized() {
		return []int{1, 7, 33, 100, 160}
	}
	return []int{d.BlockElems(), 3 * d.BlockElems()}
}

// matMul compares products of every type with the oracle's.
//
// The oracle's sums are exact beside float32. A backend sums at most 32 products
// and then at most K/32+1 partial sums, or K/32 blocks of exact integer dots with
// three roundings each (scale product, multiply-add, minimum), so n = K/32 + 40
// bounds both. Weights dequantized to float32 add one rounding, the result
// another. Narrow weights and results add one storage error each.
func (c Config) matMul(t *testing.T) {
	for _, d := range dtypes {
		t.Run(d.String(), func(t *testing.T) {
			b := c.start(t, uint64(d))
			for _, cols := range columnsOf(d) {
				for _, out := range []int{1, 16, 37} {
					h := randomTensor(b.rng, d.String(), d, out, cols)
					under, oracle := b.pack(h)
					if under.Rows() != out || under.Cols() != cols || under.Bytes() <= 0 {
						t.Fatalf("packed [%d, %d] in %d bytes, want [%d, %d]", under.Rows(), under.Cols(), under.Bytes(), out, cols)
					}
					for _, rows := range []int{1, 2, 5, 12, 31} {
						b.compareMatMul(fmt.Sprintf("[%d, %d] x [%d, %d]", rows, cols, out, cols), under, oracle, h, rows, false)
					}
					b.compareMatMul("with bias", under, oracle, h, 3, true)
				}
			}
		})
	}
	t.Run("many rows", func(t *testing.T) {
		b := c.start(t, 98)
		for _, size := range []struct{ out, cols int }{{304, 256}, {64, 1056}, {40, 72}, {96, 320}} {
			h := randomTensor(b.rng, "w", kernels.BF16, size.out, size.cols)
			under, oracle := b.pack(h)
			for _, rows := range []int{1, 7, 8, 9, 16, 17, 32, 33, 100, 257} {
				b.compareMatMul(fmt.Sprintf("[%d, %d] x %v", rows, size.cols, size), under, oracle, h, rows, false)
				b.compareMatMul(fmt.Sprintf("[%d, %d] x %v with bias", rows, size.cols, size), under, oracle, h, rows, true)
			}
		}
	})
	t.Run("gated", c.gated)
	t.Run("residual", c.residual)
	t.Run("fused parts", func(t *testing.T) {
		b := c.start(t, 99)
		q := randomTensor(b.rng, "q", kernels.Q4_1, 20, 256)
		q.RowOrder = make([]int32, 40)
		for i := range q.RowOrder {
			q.RowOrder[i] = int32((i*7 + 3) % 20)
		}
		parts := []kernels.HostTensor{q, randomTensor(b.rng, "k", kernels.F32, 5, 256),
			randomTensor(b.rng, "v", kernels.Q6_K, 16, 256), randomTensor(b.rng, "x", kernels.BF16, 17, 256)}
		under, oracle := b.pack(parts...)
		whole := kernels.HostTensor{Rows: under.Rows(), Cols: 256}
		b.compareMatMulMagnitudes("fused", under, oracle, fusedMagnitudes(parts), whole.Rows, 256, 6, true)
	})
}

// gated checks a product that goes on to SiLUMul, which a backend may do as one.
//
// Gate g and up u are off by at most e, the bound of a product plus one store, and
// the slope of silu is below 1.1: the result is off by 1.1*e*|u| + |silu(g)|*e and
// the ten roundings and the store of SiLUMul itself.
func (c Config) gated(t *testing.T) {
	b := c.start(t, 97)
	const cols, inner = 128, 96
	h := randomTensor(b.rng, "gate and up", kernels.BF16, 2*inner, cols)
	under, oracle := b.pack(h)
	mags := magnitudes(h)
	for _, rows := range []int{1, 8, 11, 32, 40} {
		x := b.normal(rows * cols)
		run := func(k kernels.Backend, w kernels.Weight) []float32 {
			both, dst := poisoned(t, k, rows*2*inner), poisoned(t, k, rows*inner)
			step(t, k, &kernels.Batch{}, func() {
				k.MatMul(both, upload(t, k, x), w, nil, rows)
				k.SiLUMul(dst, both, rows, inner)
			})
			return result(t, k, dst, rows*inner)
		}
		parts := product(t, b.oracle, oracle, x, nil, rows)
		want := run(b.oracle, oracle)
		near(t, fmt.Sprintf("%d rows", rows), run(b.under, under), want, func(i int) float64 {
			r, n := i/inner, i%inner
			e := 0.0
			for _, n := range []int{n, n + inner} {
				sum := 0.0
				for k, v := range x[r*cols : (r+1)*cols] {
					sum += math.Abs(float64(v)) * float64(mags[n*cols+k])
				}
				e = max(e, (float64(cols/32+40)*b.u+2*b.storage)*sum)
			}
			g, u := float64(parts[r*2*inner+n]), float64(parts[r*2*inner+inner+n])
			silu := g / (1 + math.Exp(-g))
			return 1.1*e*math.Abs(u) + math.Abs(silu)*e + 1.1*e*e + (10*b.u+b.storage)*math.Abs(float64(want[i]))
		})
	}
}

// residual checks a product that is added to the residual stream, normalised and
// multiplied again, twice, as a decoder does it and a backend may fuse it.
//
// The sum r is off by at most e, the bound of the product plus a store. The norm
// divides by the root mean square, whose relative error is at most that of the
// largest r and so within e over the root mean square q itself: an element of the
// norm is off by |w|*e/q*(1 + |r|/q), the roundings of the norm and two stores. The
// last product adds its own bound.
func (c Config) residual(t *testing.T) {
	b := c.start(t, 96)
	const inner, hidden, out = 128, 192, 64
	first, second := randomTensor(b.rng, "down", kernels.BF16, hidden, inner), randomTensor(b.rng, "next", kernels.BF16, out, hidden)
	u1, o1 := b.pack(first)
	u2, o2 := b.pack(second)
	mags1, mags2 := magnitudes(first), magnitudes(second)
	for _, rows := range []int{1, 8, 13, 33, 64, 70} {
		x, start, w := b.normal(rows*inner), b.normal(rows*hidden), b.normal(hidden)
		run := func(k kernels.Backend, w1, w2 kernels.Weight) (residual, normed, y []float32) {
			res, mid := upload(t, k, start), poisoned(t, k, rows*hidden)
			norm, last := poisoned(t, k, rows*hidden), poisoned(t, k, rows*out)
			in, weight := upload(t, k, x), upload(t, k, w)
			step(t, k, &kernels.Batch{}, func() {
				k.MatMul(mid, in, w1, nil, rows)
				k.AddRMSNorm(norm, res, mid, weight, rows, hidden, 1e-6)
				k.MatMul(last, norm, w2, nil, rows)
			})
			residual = make([]float32, rows*hidden)
			k.Read(residual, res)
			return residual, result(t, k, norm, rows*hidden), result(t, k, last, rows*out)
		}
		residual, normed, y := run(b.under, u1, u2)
		wantResidual, wantNormed, wantY := run(b.oracle, o1, o2)
		what := fmt.Sprintf("%d rows", rows)
		sum := make([]float64, rows*hidden) // bounds of r
		for i := range sum {
			s := math.Abs(float64(start[i]))
			for k, v := range x[i/hidden*inner : (i/hidden+1)*inner] {
				s += math.Abs(float64(v)) * float64(mags1[i%hidden*inner+k])
			}
			sum[i] = (float64(inner/32+44)*b.u + b.storage) * s
		}
		near(t, "residual, "+what, residual, wantResidual, func(i int) float64 { return sum[i] })
		offNorm := make([]float64, rows*hidden)
		for r := range rows {
			square, worst := 0.0, 0.0
			for i := r * hidden; i < (r+1)*hidden; i++ {
				square += float64(wantResidual[i]) * float64(wantResidual[i])
				worst = max(worst, sum[i])
			}
			q := math.Sqrt(square / hidden)
			for i := r * hidden; i < (r+1)*hidden; i++ {
				offNorm[i] = math.Abs(float64(w[i%hidden]))*worst/q*(1+math.Abs(float64(wantResidual[i]))/q) +
					(float64(hidden/16+24)*b.u+2*b.storage)*math.Abs(float64(wantNormed[i]))
			}
		}
		near(t, "norm, "+what, normed, wantNormed, func(i int) float64 { return offNorm[i] })
		near(t, "next product, "+what, y, wantY, func(i int) float64 {
			r, n, off := i/out, i%out, 0.0
			for k := range hidden {
				at := r*hidden + k
				off += (offNorm[at] + (float64(hidden/32+40)*b.u+b.storage)*math.Abs(float64(wantNormed[at]))) * float64(mags2[n*hidden+k])
			}
			return off + b.storage*math.Abs(float64(wantY[i]))
		})
	}
}

// fusedMagnitudes is magnitudes over parts in packed order.
func fusedMagnitudes(parts []kernels.HostTensor) []float32 {
	var all []float32
	for _, p := range parts {
		m := magnitudes(p)
		if p.RowOrder == nil {
			all = append(all, m...)
			continue
		}
		for _, r := range p.RowOrder {
			all = append(all, m[int(r)*p.Cols:(int(r)+1)*p.Cols]...)
		}
	}
	return all
}

// compareMatMul compares one product.
func (b *bench) compareMatMul(what string, under, oracle kernels.Weight, h kernels.HostTensor, rows int, bias bool) {
	b.t.Helper()
	b.compareMatMulMagnitudes(what, under, oracle, magnitudes(h), h.Rows, h.Cols, rows, bias)
}

// compareMatMulMagnitudes compares one product, given the weight's magnitudes.
func (b *bench) compareMatMulMagnitudes(what string, under, oracle kernels.Weight, mags []float32, out, cols, rows int, withBias bool) {
	b.t.Helper()
	x := b.normal(rows * cols)
	var bias []float32
	if withBias {
		bias = b.normal(out)
	} else {
		// Small rows, too; the last are below 2^-100, where int8 counts as zero.
		for i := range x {
			x[i] *= [...]float32{1, 1e-12, 1e-25, 1e-33}[i/cols%4]
		}
		b.stored(x)
	}
	got := product(b.t, b.under, under, x, bias, rows)
	want := product(b.t, b.oracle, oracle, x, bias, rows)
	// The rounding to int8 adds at most a 1/127 of the block's largest.
	rounded := make([]float64, rows*cols)
	for i := range rounded {
		at := i / cols * cols
		rounded[i] = blockMax(x[at:at+cols], i%cols) / 127
	}
	near(b.t, what, got, want, func(i int) float64 {
		r, n := i/out, i%out
		sum, weights := math.Abs(float64(want[i])), 0.0
		for k, m := range mags[n*cols : (n+1)*cols] {
			v := math.Abs(float64(x[r*cols+k]))
			weights += v * float64(m)
			sum += (v + rounded[r*cols+k]) * float64(m)
		}
		if withBias {
			sum += math.Abs(float64(bias[n]))
		}
		return float64(cols/32+40)*b.u*sum + b.storage*(weights+math.Abs(float64(want[i])))
	})
}

// blockMax returns the largest magnitude of the block of 32 that holds k.
func blockMax(row []float32, k int) float64 {
	top := 0.0
	for _, v := range row[k&^31 : min(len(row), k&^31+32)] {
		top = max(top, math.Abs(float64(v)))
	}
	return top
}

// product runs MatMul within a step.
func product(t testing.TB, b kernels.Backend, w kernels.Weight, x, bias []float32, rows int) []float32 {
	t.Helper()
	dst := poisoned(t, b, rows*w.Rows())
	var biasBuf kernels.Buffer
	if bias != nil {
		biasBuf = upload(t, b, bias)
	}
	b.Begin(&kernels.Batch{})
	b.MatMul(dst, upload(t, b, x), w, biasBuf, rows)
	if err := b.End(); err != nil {
		t.Fatal(err)
	}
	return result(t, b, dst, rows*w.Rows())
}

// matMulRowAlone checks that a row's product is the same bits alone, in a batch
// of any size, and in every other backend.
func (c Config) matMulRowAlone(t *testing.T) {
	for _, d := range dtypes {
		b := c.start(t, 7)
		others := []kernels.Backend{b.under}
		for _, o := range c.Others {
			others = append(others, open(t, o))
		}
		cols, out := 256*3, 300
		h := randomTensor(b.rng, d.String(), d, out, cols)
		x := b.normal(40 * cols)
		var want []float32
		w := pack(t, b.under, h)
		for r := range 40 {
			want = append(want, product(t, b.under, w, x[r*cols:(r+1)*cols], nil, 1)...)
		}
		for _, o := range others {
			w := pack(t, o, h)
			for rows := 1; rows <= 40; rows += 1 + rows/8 {
				got := product(t, o, w, x[:rows*cols], nil, rows)
				same(t, fmt.Sprintf("%v, %d rows", d, rows), got, want[:rows*out])
			}
		}
	}
}

// notFinite checks that an infinity or a NaN spoils its own row and no other.
func (c Config) notFinite(t *testing.T) {
	for _, d := range dtypes {
		b := c.start(t, 8)
		cols, out, rows := 256, 20, 15
		h := randomTensor(b.rng, d.String(), d, out, cols)
		under := pack(t, b.under, h)
		x := b.normal(rows * cols)
		clean := product(t, b.under, under, x, nil, rows)
		x[1*cols+5], x[4*cols+255] = float32(math.NaN()), float32(math.Inf(-1))
		got := product(t, b.under, under, x, nil, rows)
		for r := range rows {
			row := got[r*out : (r+1)*out]
			if r != 1 && r != 4 {
				if !c.Exact {
					continue
				}
				same(t, fmt.Sprintf("%v, row %d beside a NaN", d, r), row, clean[r*out:(r+1)*out])
				continue
			}
			for n, v := range row {
				if !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0) {
					t.Fatalf("%v: row %d, output %d is %v though an input was not finite", d, r, n, v)
				}
			}
		}
	}
}

// packRefuses checks that tensors that cannot be are refused by name, with what
// was expected and what was found.
func (c Config) packRefuses(t *testing.T) {
	b := c.start(t, 9)
	good := func() kernels.HostTensor { return randomTensor(b.rng, "blk.0.w", kernels.Q4_1, 2, 64) }
	check := func(want string, change func(h *kernels.HostTensor)) {
		t.Helper()
		h := good()
		change(&h)
		for _, parts := range [][]kernels.HostTensor{{h}, {good(), h}} {
			_, err := b.under.Pack(parts...)
			if err == nil {
				t.Errorf("no error, want one with %q", want)
			} else if !strings.Contains(err.Error(), `"blk.0.w"`) || !strings.Contains(err.Error(), want) {
				t.Errorf("error %q, want the tensor's name and %q", err, want)
			}
		}
	}
	check("79 bytes, want 80", func(h *kernels.HostTensor) { h.Data = h.Data[:79] })
	check("0 bytes, want 80", func(h *kernels.HostTensor) { h.Data = nil })
	check("81 bytes, want 80", func(h *kernels.HostTensor) { h.Data = append(h.Data, 0) })
	check("unknown element type DType(77)", func(h *kernels.HostTensor) { h.DType = 77 })
	check("shape [0, 64]", func(h *kernels.HostTensor) { h.Rows = 0 })
	check("shape [-2, 64]", func(h *kernels.HostTensor) { h.Rows = -2 })
	check("shape [4611686018427387904, 64]", func(h *kernels.HostTensor) { h.Rows = 1 << 62 })
	check("row order 2 at 1, want 0..1", func(h *kernels.HostTensor) { h.RowOrder = []int32{0, 2} })
	check("row order -1 at 0", func(h *kernels.HostTensor) { h.RowOrder = []int32{-1} })
	check("row order of length 0", func(h *kernels.HostTensor) { h.RowOrder = []int32{} })

	h := good()
	h.Cols = 48
	h.Data = h.Data[:60]
	if _, err := b.under.Pack(h); err == nil || !strings.Contains(err.Error(), "multiple of 32") {
		t.Errorf("48 columns of Q4_1: error %v, want one with %q", err, "multiple of 32")
	}
	if _, err := b.under.Pack(good(), randomTensor(b.rng, "narrow", kernels.F32, 1, 32)); err == nil ||
		!strings.Contains(err.Error(), `"narrow"`) || !strings.Contains(err.Error(), "32 columns, want 64") {
		t.Errorf("parts of different width: error %v", err)
	}
	if _, err := b.under.Pack(); err == nil {
		t.Error("no parts: no error")
	}
}
