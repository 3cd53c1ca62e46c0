package cpu

import (
	"math"

	"waybill/kernels"
)

// ropeTask is RopeAndCache.
type ropeTask struct {
	rowTask
	layer        kernels.QKV
	cache        *cache
	qkv          []float32
	qNorm, kNorm []float32
	table        *angleTable
}

// angleTable holds cosines and sines of a step's positions for one set of
// frequencies, since all layers that share them turn by the same angles.
type angleTable struct {
	invFreq  kernels.Buffer
	cos, sin []float32 // [N, headDim/2]
}

// maxAngleTables bounds the tables of a step. Models have one set of
// frequencies, or two where windowed layers have their own.
const maxAngleTables = 4

// angles returns the step's table for a, made on first use.
func (b *Backend) angles(a kernels.QKV) *angleTable {
	for i := range b.tables {
		if b.tables[i].invFreq == a.InvFreq {
			return &b.tables[i]
		}
	}
	if len(b.tables) == maxAngleTables {
		b.tables = b.tables[:0]
	}
	b.tables = b.tables[:len(b.tables)+1]
	t := &b.tables[len(b.tables)-1]
	freq := floats(a.InvFreq, a.HeadDim/2, "InvFreq")
	t.invFreq, t.cos, t.sin = a.InvFreq, t.cos[:0], t.sin[:0]
	for _, pos := range b.batch.Positions {
		for _, f := range freq {
			// The angle is rounded to float32 as the models' own code does.
			sin, cos := math.Sincos(float64(float32(pos) * f))
			t.cos, t.sin = append(t.cos, float32(cos)), append(t.sin, float32(sin))
		}
	}
	return t
}

// RopeAndCache normalises (if asked) and rotates q and k of qkv in place and
// writes k and v to the cache.
func (b *Backend) RopeAndCache(qkv kernels.Buffer, c kernels.Cache, a kernels.QKV) {
	b.flush()
	t := &b.rope
	t.layer, t.cache = a, checkedCache(c, a)
	t.qkv = floats(qkv, len(b.step().Tokens)*a.Cols(), "qkv")
	t.qNorm, t.kNorm = nil, nil
	if a.QNorm != nil {
		t.qNorm = floats(a.QNorm, a.HeadDim, "QNorm")
	}
	if a.KNorm != nil {
		t.kNorm = floats(a.KNorm, a.HeadDim, "KNorm")
	}
	t.table = b.angles(a)
	slots := t.cache.spec.NumBlocks * t.cache.spec.BlockSize
	for i, s := range b.batch.Slots {
		if s < 0 || int(s) >= slots {
			panic(bug("token %d has slot %d of %d", i, s, slots))
		}
	}
	const costOfStoring = 4 // keys are scattered one element at a time
	tokens := len(b.batch.Tokens)
	chunks := t.cut(tokens, costOfStoring*a.Cols())
	if tokens >= 2*tileRows*b.options.Threads {
		// A cache line holds an element of the keys of neighbouring positions: a
		// strip of them is one thread's.
		t.each = (t.each + tileRows - 1) &^ (tileRows - 1)
		chunks = (tokens + t.each - 1) / t.each
	}
	b.pool.run(t, chunks)
}

// run does the tokens of a chunk.
func (t *ropeTask) run(thread, chunk int) {
	first, end := t.span(chunk)
	a, k, d := &t.layer, t.backend.kernels, t.layer.HeadDim
	for i := first; i < end; i++ {
		row := t.qkv[i*a.Cols() : (i+1)*a.Cols()]
		cos, sin := t.table.cos[i*d/2:(i+1)*d/2], t.table.sin[i*d/2:(i+1)*d/2]
		for h := range a.NumHeads + a.NumKVHeads {
			head, norm := row[h*d:(h+1)*d], t.qNorm
			if h >= a.NumHeads {
				norm = t.kNorm
			}
			if norm != nil {
				normRow(k, head, head, norm, a.NormEps)
			}
			k.rotate(head[:d/2], head[d/2:], cos, sin)
		}
		for h := range a.NumKVHeads {
			key := row[(a.NumHeads+h)*d:][:d]
			value := row[(a.NumHeads+a.NumKVHeads+h)*d:][:d]
			t.cache.write(k, &t.backend.scratch[thread].short, a.Layer, h, int(t.backend.batch.Slots[i]), key, value)
		}
	}
}

// checkedCache returns c as ours after comparing its shape with the layer's.
func checkedCache(c kernels.Cache, a kernels.QKV) *cache {
	kv, ok := c.(*cache)
	if !ok {
		panic(bug("cache is a %T", c))
	}
	checkLayer(kv.spec, a)
	return kv
}
