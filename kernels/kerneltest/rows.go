package kerneltest

import (
	"fmt"
	"math"
	"testing"

	"waybill/kernels"
)

// step runs f between Begin and End.
func step(t testing.TB, b kernels.Backend, batch *kernels.Batch, f func()) {
	t.Helper()
	b.Begin(batch)
	f()
	if err := b.End(); err != nil {
		t.Fatal(err)
	}
}

// embed checks Embed and Gather of every type: values are those of the file,
// rounded once where a scale, a quant and a minimum make them.
func (c Config) embed(t *testing.T) {
	for _, d := range dtypes {
		b := c.start(t, 20)
		const vocabulary, cols = 53, 512
		under, oracle := b.pack(randomTensor(b.rng, "embedding", d, vocabulary, cols))
		batch := &kernels.Batch{Tokens: []int32{0, 52, 16, 16, 15, 47}, Logits: []int32{5, 0}}
		n := len(batch.Tokens) * cols
		run := func(k kernels.Backend, w kernels.Weight) (all, some []float32) {
			dst, out := poisoned(t, k, n), poisoned(t, k, 2*cols)
			step(t, k, batch, func() {
				k.Embed(dst, w)
				k.Gather(out, dst, cols)
			})
			return result(t, k, dst, n), result(t, k, out, 2*cols)
		}
		got, some := run(b.under, under)
		want, _ := run(b.oracle, oracle)
		near(t, d.String(), got, want, func(i int) float64 { return (2*b.u + b.storage) * math.Abs(float64(want[i])) })
		same(t, "Gather", some, append(append([]float32{}, got[5*cols:]...), got[:cols]...))
	}
}

// rows checks the ops along a row.
//
// RMSNorm: at least 16 partial sums of squares, all positive, so cols/16 + 16
// roundings, halved by the root, then four more. SiLU: exp within 2 ulp, three
// operations; a result below the normal range may be lost. Narrow storage adds an
// error for the result and two for a sum that was stored before it was normalised.
func (c Config) rows(t *testing.T) {
	for _, cols := range []int{1, 15, 16, 50, 576, 4099} {
		for _, rows := range []int{1, 3, 70} {
			b := c.start(t, uint64(cols))
			what := fmt.Sprintf("[%d, %d]", rows, cols)
			x, y, w := b.normal(rows*cols), b.normal(rows*cols), b.normal(cols)
			norm := func(k kernels.Backend) (plain, added, residual []float32) {
				dst, dst2, res := poisoned(t, k, rows*cols), poisoned(t, k, rows*cols), upload(t, k, x)
				weight := upload(t, k, w)
				step(t, k, &kernels.Batch{}, func() {
					k.RMSNorm(dst, upload(t, k, x), weight, rows, cols, 1e-5)
					k.AddRMSNorm(dst2, res, upload(t, k, y), weight, rows, cols, 1e-5)
				})
				residual = make([]float32, rows*cols)
				k.Read(residual, res)
				return result(t, k, dst, rows*cols), result(t, k, dst2, rows*cols), residual
			}
			plain, added, residual := norm(b.under)
			wantPlain, wantAdded, wantResidual := norm(b.oracle)
			tolerance := func(want []float32) func(int) float64 {
				return func(i int) float64 {
					return (float64(cols/16+24)*b.u + 3*b.storage) * math.Abs(float64(want[i]))
				}
			}
			near(t, "RMSNorm "+what, plain, wantPlain, tolerance(wantPlain))
			near(t, "AddRMSNorm "+what, added, wantAdded, tolerance(wantAdded))
			near(t, "AddRMSNorm residual "+what, residual, wantResidual, func(i int) float64 {
				return b.storage * math.Abs(float64(wantResidual[i])) // none: exact
			})

			gateUp := b.normal(rows * 2 * cols)
			for i := range gateUp {
				gateUp[i] *= 20 // far into both tails
			}
			gateUp[0] = -200
			b.stored(gateUp)
			silu := func(k kernels.Backend) []float32 {
				dst := poisoned(t, k, rows*cols)
				step(t, k, &kernels.Batch{}, func() { k.SiLUMul(dst, upload(t, k, gateUp), rows, cols) })
				return result(t, k, dst, rows*cols)
			}
			want := silu(b.oracle)
			near(t, "SiLUMul "+what, silu(b.under), want, func(i int) float64 {
				// The sigmoid may be lost below 2^-126; it is multiplied by the gate and up.
				r := i / cols
				lost := math.Abs(float64(gateUp[i+r*cols])*float64(gateUp[i+(r+1)*cols])) * 0x1p-126
				return (10*b.u+b.storage)*math.Abs(float64(want[i])) + lost + 0x1p-126
			})
		}
	}
}

// rope checks the rotation, with and without norms of the heads. Each element is
// two products of rounded cosines and sines: four roundings of |x|+|y|; norms
// add what rows derives.
func (c Config) rope(t *testing.T) {
	for _, dim := range []int{2, 6, 32, 64, 80, 128} {
		for _, norms := range []bool{false, true} {
			b := c.start(t, uint64(dim))
			a := kernels.QKV{Layer: 1, NumHeads: 6, NumKVHeads: 2, HeadDim: dim, NormEps: 1e-6, Scale: 1}
			if dim == 128 {
				a.NumHeads = 54 // more heads than a block of the GPU has under way
			}
			freq, q, k := make([]float32, dim/2), b.normal(dim), b.normal(dim)
			for i := range freq {
				freq[i] = float32(math.Pow(10000, -2*float64(i)/float64(dim)))
			}
			batch := &kernels.Batch{}
			const tokens = 21
			for i := range tokens {
				batch.Tokens = append(batch.Tokens, 0)
				batch.Positions = append(batch.Positions, int32(i*i*i*10))
				batch.Slots = append(batch.Slots, int32(2*i))
			}
			x := b.normal(tokens * a.Cols())
			run := func(be kernels.Backend) []float32 {
				cache, err := be.NewCache(kernels.CacheSpec{Layers: 2, NumKVHeads: 2, HeadDim: dim, BlockSize: 5, NumBlocks: 9, DType: c.kvTypes()[0]})
				if err != nil {
					t.Fatal(err)
				}
				defer cache.Close()
				l := a
				l.InvFreq = upload(t, be, freq)
				if norms {
					l.QNorm, l.KNorm = upload(t, be, q), upload(t, be, k)
				}
				qkv := poisoned(t, be, tokens*a.Cols())
				all := make([]float32, tokens*a.Cols()+guard)
				be.Read(all, qkv)
				copy(all, x)
				qkv = upload(t, be, all)
				step(t, be, batch, func() { be.RopeAndCache(qkv, cache, l) })
				return result(t, be, qkv, tokens*a.Cols())
			}
			got, want := run(b.under), run(b.oracle)
			terms := 6.0
			if norms {
				terms += float64(dim/16 + 24)
			}
			near(t, fmt.Sprintf("dim %d norms %v", dim, norms), got, want, func(i int) float64 {
				head, d := i/dim*dim, i%dim%(dim/2)
				return terms*b.u*(math.Abs(float64(want[head+d]))+math.Abs(float64(want[head+d+dim/2]))) + b.storage*math.Abs(float64(want[i]))
			})
		}
	}
}
