package kerneltest

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"waybill/kernels"
	"waybill/kernels/quant"
)

// kvTypes are the element types of a cache.
var kvTypes = []kernels.DType{kernels.F32, kernels.F16, kernels.BF16}

// attentionCase is sequences over one cache, fed in chunks.
type attentionCase struct {
	layer     kernels.QKV
	dtype     kernels.DType
	blockSize int
	// lens are the lengths of the sequences.
	lens []int
	// rows are the fused q, k, v of every token, sequence after sequence.
	rows []float32
}

// newCase returns a case whose keys and values survive narrowing to any type, so
// that all caches hold the same.
func (b *bench) newCase(a kernels.QKV, d kernels.DType, blockSize int, lens ...int) *attentionCase {
	c := &attentionCase{layer: a, dtype: d, blockSize: blockSize, lens: lens}
	total := 0
	for _, n := range lens {
		total += n
	}
	c.rows = b.normal(total * a.Cols())
	for i := range c.rows {
		if i%a.Cols() >= a.NumHeads*a.HeadDim {
			c.rows[i] = quant.BF16ToF32(quant.F32ToBF16(c.rows[i]))
			if d == kernels.F16 {
				c.rows[i] = quant.F16ToF32(quant.F32ToF16(c.rows[i]))
			}
		}
	}
	return c
}

// run feeds every sequence to b in chunks of the given size, all sequences side
// by side, and returns the attention of every token. Angles are zero.
func (c *attentionCase) run(t testing.TB, b kernels.Backend, chunk int) []float32 {
	t.Helper()
	a := c.layer
	blocks := 0
	for _, n := range c.lens {
		blocks += (n+c.blockSize-1)/c.blockSize + 1
	}
	spec := kernels.CacheSpec{Layers: a.Layer + 1, NumKVHeads: a.NumKVHeads, HeadDim: a.HeadDim,
		BlockSize: c.blockSize, NumBlocks: blocks, DType: c.dtype}
	cache, err := b.NewCache(spec)
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	a.InvFreq = upload(t, b, make([]float32, a.HeadDim/2))
	tables := scatteredTables(c.lens, c.blockSize, blocks)
	heads := a.NumHeads * a.HeadDim
	out := make([]float32, len(c.rows)/a.Cols()*heads)
	done := make([]int, len(c.lens))
	for {
		batch := &kernels.Batch{}
		var rows []float32
		var places []int
		start := 0
		for s, n := range c.lens {
			if k := min(chunk, n-done[s]); k > 0 {
				batch.Seqs = append(batch.Seqs, kernels.BatchSeq{First: len(batch.Tokens), Len: k, Context: done[s], Blocks: tables[s]})
				for i := range k {
					p := done[s] + i
					batch.Tokens = append(batch.Tokens, 0)
					batch.Positions = append(batch.Positions, int32(p))
					batch.Slots = append(batch.Slots, tables[s][p/c.blockSize]*int32(c.blockSize)+int32(p%c.blockSize))
					rows = append(rows, c.rows[(start+p)*a.Cols():(start+p+1)*a.Cols()]...)
					places = append(places, start+p)
				}
				done[s] += k
			}
			start += n
		}
		if len(places) == 0 {
			return out
		}
		qkv, dst := upload(t, b, rows), poisoned(t, b, len(places)*heads)
		step(t, b, batch, func() {
			b.RopeAndCache(qkv, cache, a)
			b.Attention(dst, qkv, cache, a)
		})
		for i, v := range result(t, b, dst, len(places)*heads) {
			out[places[i/heads]*heads+i%heads] = v
		}
	}
}

// expectations are the oracle's results by case: they are the same for every
// backend, and most of the time of the test.
var expectations sync.Map // string: func() []float32

// expected returns the oracle's result of the case that key describes.
func (c *attentionCase) expected(t testing.TB, b *bench, key string) []float32 {
	once, _ := expectations.LoadOrStore(key, sync.OnceValue(func() []float32 { return c.run(t, b.oracle, 1<<20) }))
	return once.(func() []float32)()
}

// scatteredTables deals blocks to sequences in an order that is not theirs.
func scatteredTables(lens []int, blockSize, blocks int) [][]int32 {
	tables := make([][]int32, len(lens))
	next := 0
	for s, n := range lens {
		for range (n + blockSize - 1) / blockSize {
			// 7919 is prime and larger than any pool here: a permutation.
			tables[s] = append(tables[s], int32(next*7919%blocks))
			next++
		}
	}
	return tables
}

// attention compares with the oracle.
//
// A score is headDim products of magnitude |q||k|: off by e = (headDim+3)*u*S, S
// the largest such sum. A weight is off by 2e (its own and the largest score's)
// and some 6 roundings, the weighted sum and the total of n positions by n
// roundings each, all relative to Σ weight*|value| <= max|value|. Where activations
// are narrow, weights are, too: one storage error for them and one for the result.
func (c Config) attention(t *testing.T) {
	for i, s := range []struct {
		heads, kvHeads, dim, block, window int
		lens                               []int
	}{
		{9, 3, 64, 16, 0, []int{1, 40, 17}},
		{9, 3, 64, 16, 0, []int{520}},
		{4, 4, 32, 8, 0, []int{37, 3}},
		{8, 1, 80, 32, 0, []int{50}},
		{15, 1, 16, 5, 0, []int{29}},
		{14, 2, 128, 16, 24, []int{90, 10}},
		{4, 2, 32, 16, 3, []int{530}},
		{3, 1, 6, 3, 0, []int{20}},
		{16, 8, 128, 16, 0, []int{300, 1, 65}},
		{8, 1, 128, 32, 0, []int{1100, 40}},
		{4, 2, 64, 16, 0, []int{900, 2, 700}},
	} {
		if c.Storage == 0 && slices.Max(s.lens) > 600 {
			continue // long enough to be cut into pieces on a GPU; minutes on a CPU
		}
		for _, d := range c.kvTypes() {
			b := c.start(t, uint64(100+i))
			a := kernels.QKV{Layer: i % 2, NumHeads: s.heads, NumKVHeads: s.kvHeads, HeadDim: s.dim,
				Scale: float32(1 / math.Sqrt(float64(s.dim))), Window: s.window}
			test := b.newCase(a, d, s.block, s.lens...)
			want := test.expected(t, b, fmt.Sprintf("%+v %v %v", s, d, c.Storage))
			var norm, top float64 // largest |q||k| and |v| sums
			for at := 0; at < len(test.rows); at += s.dim {
				sum := 0.0
				for _, v := range test.rows[at : at+s.dim] {
					sum += float64(v) * float64(v)
					top = max(top, math.Abs(float64(v)))
				}
				norm = max(norm, sum) // Cauchy-Schwarz: Σ|q||k| <= largest squared norm
			}
			longest := 0
			for _, n := range s.lens {
				longest = max(longest, n)
			}
			score := float64(s.dim+3) * b.u * norm * float64(a.Scale)
			tolerance := (2*score + float64(2*longest+12)*b.u + 2*b.storage) * top
			for _, chunk := range chunksOf(longest) {
				got := test.run(t, b.under, chunk)
				near(t, fmt.Sprintf("%+v %v chunk %d", s, d, chunk), got, want, func(int) float64 { return tolerance })
			}
		}
	}
}

// chunksOf returns chunk sizes to try: all at once, cut unevenly, and nearly all,
// which leaves a short rest behind a long context; for short contexts single
// tokens, as in generation.
func chunksOf(longest int) []int {
	chunks := []int{1 << 20, 13, max(1, longest-1)}
	if longest <= 100 {
		chunks = append(chunks, 1)
	}
	return chunks
}

// spanOver is a length that crosses the borders at which implementations cut long
// contexts: powers of two up to 512.
const spanOver = 530

// chunks checks that a token's attention is the same bits however its prompt is
// cut, beside whatever else, for any block size and in every other backend.
func (c Config) chunks(t *testing.T) {
	for i, a := range []kernels.QKV{
		{NumHeads: 9, NumKVHeads: 3, HeadDim: 64, Scale: 0.125},
		{NumHeads: 8, NumKVHeads: 1, HeadDim: 16, Scale: 0.25, Window: 21},
		{NumHeads: 2, NumKVHeads: 2, HeadDim: 10, Scale: 0.3},
	} {
		for _, d := range c.kvTypes() {
			b := c.start(t, uint64(i))
			long := 70
			if d == kvTypes[i] {
				long = spanOver // each layer with another type
			}
			test := b.newCase(a, d, 16, 1, long, 33)
			want := test.run(t, b.under, 1<<20)
			for _, chunk := range []int{1, 7, 100} {
				same(t, fmt.Sprintf("chunk %d", chunk), test.run(t, b.under, chunk), want)
			}
			for _, size := range []int{1, 5, 24, 32, 512} {
				test.blockSize = size
				same(t, fmt.Sprintf("blocks of %d", size), test.run(t, b.under, 50), want)
			}
			test.blockSize = 16
			for _, make := range c.Others {
				same(t, "other backend", test.run(t, open(t, make), 60), want)
			}
			alone := *test
			alone.lens, alone.rows = []int{long}, test.rows[a.Cols():(long+1)*a.Cols()]
			heads := a.NumHeads * a.HeadDim
			same(t, "alone", alone.run(t, b.under, 64), want[heads:(long+1)*heads])
		}
	}
}

// stores checks that keys and values are narrowed to the cache's type: with one
// position in sight the result is the stored value itself.
func (c Config) stores(t *testing.T) {
	for _, d := range c.kvTypes() {
		b := c.start(t, 5)
		a := kernels.QKV{NumHeads: 2, NumKVHeads: 2, HeadDim: 48, Scale: 1, Window: 1}
		test := b.newCase(a, d, 16, 40)
		values := b.normal(len(test.rows))
		for i := range values {
			values[i] *= float32(math.Pow(10, float64(i%13-6))) // into the subnormals of F16
		}
		test.rows = values
		got, want := test.run(t, b.under, 40), test.run(t, b.oracle, 40)
		same(t, d.String(), got, want)
	}
}
