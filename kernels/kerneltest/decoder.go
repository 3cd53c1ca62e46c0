package kerneltest

import (
	"math/rand/v2"
	"testing"

	"waybill/kernels"
)

// Shape is the size of a decoder-only model.
type Shape struct {
	Layers, Hidden, Inner, NumHeads, NumKVHeads, HeadDim, Vocabulary int
	// Linear and Embedding are the types of the layers' weights and of the tied
	// embedding.
	Linear, Embedding kernels.DType
	// KV is the type of the cache.
	KV kernels.DType
}

// SmolLM2 is the shape of SmolLM2-135M in Q4_1, the model that waybill serves by
// default.
var SmolLM2 = Shape{
	Layers: 30, Hidden: 576, Inner: 1536, NumHeads: 9, NumKVHeads: 3, HeadDim: 64, Vocabulary: 49152,
	Linear: kernels.Q4_1, Embedding: kernels.Q8_0, KV: kernels.F16,
}

// Decoder is a model of random weights that runs every op as a real one does.
type Decoder struct {
	Shape
	backend                                kernels.Backend
	cache                                  kernels.Cache
	layers                                 []decoderLayer
	embedding                              kernels.Weight
	norm, freq                             kernels.Buffer
	x, residual, qkv, attended, gateUp, up kernels.Buffer
	picked, logits                         kernels.Buffer
}

// decoderLayer is the weights of one layer; all norms are ones.
type decoderLayer struct {
	qkv, out, gateUp, down kernels.Weight
}

// NewDecoder makes a model on b for steps of up to maxTokens tokens and maxRows
// logits, with a cache of blocks blocks of 16.
func NewDecoder(t testing.TB, b kernels.Backend, s Shape, maxTokens, maxRows, blocks int) *Decoder {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	weight := func(d kernels.DType, rows, cols int) kernels.Weight {
		return pack(t, b, randomTensor(rng, "w", d, rows, cols))
	}
	buffer := func(n int) kernels.Buffer {
		buf, err := b.NewBuffer(n)
		if err != nil {
			t.Fatal(err)
		}
		return buf
	}
	d := &Decoder{Shape: s, backend: b}
	width := (s.NumHeads + 2*s.NumKVHeads) * s.HeadDim
	for range s.Layers {
		d.layers = append(d.layers, decoderLayer{
			qkv: weight(s.Linear, width, s.Hidden), out: weight(s.Linear, s.Hidden, s.NumHeads*s.HeadDim),
			gateUp: weight(s.Linear, 2*s.Inner, s.Hidden), down: weight(s.Linear, s.Hidden, s.Inner),
		})
	}
	d.embedding = weight(s.Embedding, s.Vocabulary, s.Hidden)
	ones, freq := make([]float32, s.Hidden), make([]float32, s.HeadDim/2)
	for i := range ones {
		ones[i] = 1
	}
	for i := range freq {
		freq[i] = 1 / float32(i+1)
	}
	d.norm, d.freq = upload(t, b, ones), upload(t, b, freq)
	d.x, d.residual, d.qkv = buffer(maxTokens*s.Hidden), buffer(maxTokens*s.Hidden), buffer(maxTokens*width)
	d.attended = buffer(maxTokens * s.NumHeads * s.HeadDim)
	d.gateUp, d.up = buffer(maxTokens*2*s.Inner), buffer(maxTokens*s.Inner)
	d.picked, d.logits = buffer(maxRows*s.Hidden), buffer(maxRows*s.Vocabulary)
	cache, err := b.NewCache(kernels.CacheSpec{Layers: s.Layers, NumKVHeads: s.NumKVHeads, HeadDim: s.HeadDim,
		BlockSize: 16, NumBlocks: blocks, DType: s.KV})
	if err != nil {
		t.Fatal(err)
	}
	d.cache = cache
	t.Cleanup(func() { cache.Close() })
	return d
}

// Step runs one step over batch.
func (d *Decoder) Step(t testing.TB, batch *kernels.Batch) {
	b, s, n := d.backend, &d.Shape, len(batch.Tokens)
	const eps = 1e-5
	b.Begin(batch)
	b.Embed(d.residual, d.embedding)
	b.RMSNorm(d.x, d.residual, d.norm, n, s.Hidden, eps)
	for i := range d.layers {
		l := &d.layers[i]
		a := kernels.QKV{Layer: i, NumHeads: s.NumHeads, NumKVHeads: s.NumKVHeads, HeadDim: s.HeadDim, InvFreq: d.freq, Scale: 0.125}
		b.MatMul(d.qkv, d.x, l.qkv, nil, n)
		b.RopeAndCache(d.qkv, d.cache, a)
		b.Attention(d.attended, d.qkv, d.cache, a)
		b.MatMul(d.x, d.attended, l.out, nil, n)
		b.AddRMSNorm(d.x, d.residual, d.x, d.norm, n, s.Hidden, eps)
		b.MatMul(d.gateUp, d.x, l.gateUp, nil, n)
		b.SiLUMul(d.up, d.gateUp, n, s.Inner)
		b.MatMul(d.x, d.up, l.down, nil, n)
		b.AddRMSNorm(d.x, d.residual, d.x, d.norm, n, s.Hidden, eps)
	}
	b.Gather(d.picked, d.x, s.Hidden)
	b.MatMul(d.logits, d.picked, d.embedding, nil, len(batch.Logits))
	if err := b.End(); err != nil {
		t.Fatal(err)
	}
}

// Remember fills the cache's places of batch with random keys and values, for
// steps behind a context that nobody computed.
func (d *Decoder) Remember(t testing.TB, batch *kernels.Batch) {
	b, s := d.backend, &d.Shape
	rng := rand.New(rand.NewPCG(3, 4))
	width := (s.NumHeads + 2*s.NumKVHeads) * s.HeadDim
	rows := make([]float32, len(batch.Tokens)*width)
	for i := range rows {
		rows[i] = float32(rng.NormFloat64())
	}
	qkv := upload(t, b, rows)
	b.Begin(batch)
	for i := range d.layers {
		b.RopeAndCache(qkv, d.cache, kernels.QKV{Layer: i, NumHeads: s.NumHeads, NumKVHeads: s.NumKVHeads, HeadDim: s.HeadDim, InvFreq: d.freq, Scale: 0.125})
	}
	if err := b.End(); err != nil {
		t.Fatal(err)
	}
}

// Attend runs only the attention of all layers over batch.
func (d *Decoder) Attend(t testing.TB, batch *kernels.Batch) {
	b, s := d.backend, &d.Shape
	b.Begin(batch)
	for i := range d.layers {
		b.Attention(d.attended, d.qkv, d.cache, kernels.QKV{Layer: i, NumHeads: s.NumHeads, NumKVHeads: s.NumKVHeads, HeadDim: s.HeadDim, InvFreq: d.freq, Scale: 0.125})
	}
	if err := b.End(); err != nil {
		t.Fatal(err)
	}
}

// Prefill returns a batch of one prompt of n tokens.
func Prefill(n int) *kernels.Batch {
	b := &kernels.Batch{Logits: []int32{int32(n - 1)}}
	seq := kernels.BatchSeq{Len: n}
	for i := range n {
		b.Tokens = append(b.Tokens, int32(i))
		b.Positions = append(b.Positions, int32(i))
		b.Slots = append(b.Slots, int32(i))
		if i%16 == 0 {
			seq.Blocks = append(seq.Blocks, int32(i/16))
		}
	}
	b.Seqs = []kernels.BatchSeq{seq}
	return b
}

// Decode returns a batch of rows sequences that each add a token to context.
func Decode(rows, context int) *kernels.Batch {
	b := &kernels.Batch{}
	per := context/16 + 1
	for r := range rows {
		seq := kernels.BatchSeq{First: r, Len: 1, Context: context}
		for i := range per {
			seq.Blocks = append(seq.Blocks, int32(r*per+i))
		}
		b.Tokens = append(b.Tokens, int32(r))
		b.Positions = append(b.Positions, int32(context))
		b.Slots = append(b.Slots, int32((r*per+per-1)*16+context%16))
		b.Logits = append(b.Logits, int32(r))
		b.Seqs = append(b.Seqs, seq)
	}
	return b
}
