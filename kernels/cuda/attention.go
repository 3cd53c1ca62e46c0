//go:build cuda

package cuda

import (
	"unsafe"

	"gorgonia.org/cu"

	"waybill/kernels"
	"waybill/kernels/cuda/driver"
)

const (
	// maxGroup is how many query heads may share a key head in src/decode.cu.
	maxGroup = 8
	// maxHeadDim is the widest head of src/attention.cu and src/rope.cu.
	maxHeadDim = 1024
	// hopperRows is the mean number of new tokens of a sequence from which the wgmma
	// kernel, whose tiles have 128 rows, is used.
	hopperRows = 256
)

// attnMemory is what the attention library works in.
type attnMemory struct {
	plan     driver.Attn
	planned  bool // for the running step
	intsHost unsafe.Pointer
	ints     cu.DevicePtr
	floats   cu.DevicePtr
	lens     []int32
}

// openAttn opens the library.
func (b *Backend) openAttn() (err error) {
	if err := driver.LoadAttn(attnImage); err != nil {
		return err
	}
	m := &b.attn
	if m.floats, err = b.alloc(attnFloatBytes); err != nil {
		return err
	}
	if m.ints, err = b.alloc(attnIntBytes); err != nil {
		return err
	}
	m.intsHost, err = b.allocPinned(attnIntBytes)
	return err
}

// Attention sets dst [N, numHeads*headDim] to causal attention of the q part of qkv
// over the cache.
func (b *Backend) Attention(dst, qkv kernels.Buffer, kv kernels.Cache, a kernels.QKV) {
	batch, c := b.step(), kv.(*cache)
	checkLayer(c, a)
	r := &b.steps.turn
	fuse := r.waiting && kernels.Buffer(r.qkv) == qkv && r.cache == c && r.a.Layer == a.Layer
	if fuse {
		r.waiting = false
	}
	b.flush()
	n := len(batch.Tokens)
	var q cu.DevicePtr
	float := false
	if fuse {
		q, float = b.fused(qkv, n*a.Cols())
	} else {
		q = b.input(qkv, n*a.Cols(), "qkv")
	}
	out := b.output(dst, n*a.NumHeads*a.HeadDim, "dst")
	for i := range batch.Seqs {
		s := &batch.Seqs[i]
		if (s.Context+s.Len+c.spec.BlockSize-1)/c.spec.BlockSize > len(s.Blocks) {
			panic(bug("block table of %d for %d positions", len(s.Blocks), s.Context+s.Len))
		}
		for _, block := range s.Blocks {
			if block < 0 || int(block) >= c.spec.NumBlocks {
				panic(bug("block %d of a cache of %d", block, c.spec.NumBlocks))
			}
		}
	}
	t := &b.tables
	switch fast, decode := b.fast(c, a), b.decodes(c, a); {
	case n == 0:
	case !fast || t.decode > 0 && !decode:
		b.attendAny(out, q, c, a, n)
	default:
		if t.decode > 0 {
			b.attendDecode(out, q, c, a, fuse, float)
		}
		if t.seqs > t.decode {
			b.attendPrefill(out, q, c, a)
		}
	}
}

// fast reports whether the faster kernels take a layer.
func (b *Backend) fast(c *cache, a kernels.QKV) bool {
	return a.Window == 0 && (a.HeadDim == 64 || a.HeadDim == 128) && c.spec.BlockSize == b.tables.blockSize
}

// decodes reports whether src/decode.cu takes a layer's rows of one new token.
func (b *Backend) decodes(c *cache, a kernels.QKV) bool {
	return b.fast(c, a) && a.NumHeads/a.NumKVHeads <= maxGroup && c.spec.BlockSize%16 == 0 && b.tables.decode <= maxGraphRows
}

// turns reports whether it also does the layer's RopeAndCache: all rows are its own.
func (b *Backend) turns(c *cache, a kernels.QKV) bool {
	return b.decodes(c, a) && b.tables.decode == b.tables.tokens
}

// attendAny runs the kernel that takes everything.
func (b *Backend) attendAny(out, q cu.DevicePtr, c *cache, a kernels.QKV, n int) {
	t := &b.tables
	b.args.Reset().Ptr(out).Ptr(q).Ptr(c.keys(a.Layer)).Ptr(c.values(a.Layer)).Ptr(t.at(t.positionAt)).Ptr(t.at(t.seqAt)).
		Ptr(t.at(t.tableAt)).Ptr(t.at(t.blockAt)).Int(n).Int(a.NumHeads).Int(a.NumKVHeads).Int(a.HeadDim).
		Int(c.spec.BlockSize).Int(a.Window).Float(a.Scale)
	b.launch("attention", b.fn.attention, [3]int{(n*a.NumHeads + 3) / 4, 1, 1}, 128, 0, &b.args)
}

// attendDecode does the rows of one new token, which come first; with turn also what
// RopeAndCache left to do, on rows of float32 or bf16.
func (b *Backend) attendDecode(out, q cu.DevicePtr, c *cache, a kernels.QKV, turn, float bool) {
	t, fn := &b.tables, b.fn.decode[a.HeadDim]
	switch {
	case float:
		fn = b.fn.turnFloat[a.HeadDim]
	case turn:
		fn = b.fn.turnDecode[a.HeadDim]
	}
	qNorm, kNorm := norms(a)
	b.args.Struct().Ptr(out).Ptr(q).Ptr(c.keys(a.Layer)).Ptr(c.values(a.Layer)).Ptr(t.at(t.pieceAt)).Ptr(t.at(wordPieces)).
		Ptr(t.at(t.rowAt)).Ptr(t.at(t.blockAt)).Ptr(t.at(t.slotAt)).Int(a.NumHeads).Int(a.NumKVHeads).Int(c.spec.BlockSize).
		Float(a.Scale).Ptr(c.partOut).Ptr(c.partSum).Ptr(c.arrived).Ptr(parameter(a.InvFreq, a.HeadDim/2, "InvFreq")).
		Ptr(qNorm).Ptr(kNorm).Float(a.NormEps)
	b.launch("decode_attention", fn, [3]int{b.sms, 1, 1}, 256, 0, &b.args)
}

// attendPrefill does the sequences of several new tokens with the attention library.
// The plan is made at a step's first layer and serves all.
func (b *Backend) attendPrefill(out, q cu.DevicePtr, c *cache, a kernels.QKV) {
	if b.err != nil {
		return
	}
	t, m := &b.tables, &b.attn
	seqs, rows := t.seqs-t.decode, t.tokens-t.decode
	if !m.planned {
		h := t.host
		m.plan = driver.Attn{
			Hopper: b.major == 9 && a.HeadDim == 128 && rows/seqs >= hopperRows,
			Batch:  seqs, Rows: rows, QHeads: a.NumHeads, KVHeads: a.NumKVHeads, HeadDim: a.HeadDim,
			PageSize: c.spec.BlockSize, QStride: a.Cols(), Scale: a.Scale,
			FloatWS: m.floats, FloatWSBytes: attnFloatBytes, IntWS: m.ints, IntWSBytes: attnIntBytes, IntWSHost: m.intsHost,
		}
		m.lens = m.lens[:0]
		for i := t.decode; i < t.seqs; i++ {
			m.lens = append(m.lens, int32(b.batch.Seqs[i].Context+b.batch.Seqs[i].Len))
		}
		if err := m.plan.Plan(h[t.queryAt:t.queryAt+seqs+1], h[t.pageAt:t.pageAt+seqs+1], m.lens, b.stream); err != nil {
			b.fail("attention", err)
			return
		}
		m.planned = true
	}
	io := driver.AttnIO{
		Q: q + cu.DevicePtr(t.decode*a.Cols()*2), Out: out + cu.DevicePtr(t.decode*a.NumHeads*a.HeadDim*2),
		K: c.keys(a.Layer), V: c.values(a.Layer),
		QOIndptr: t.at(t.queryAt), KVIndptr: t.at(t.pageAt), KVIndices: t.at(t.blockAt + t.prefillBlock), KVLastLen: t.at(t.lastAt),
	}
	b.fail("attention", m.plan.Run(io, b.stream))
	b.settled("attention of FlashInfer")
}
