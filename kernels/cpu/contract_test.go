package cpu_test

import (
	"fmt"
	"strings"
	"testing"

	"waybill/kernels"
	"waybill/kernels/cpu"
)

// TestBrokenContractsAreBugs checks that an op given what it cannot do says so
// instead of reading or writing elsewhere, on one thread and on two.
func TestBrokenContractsAreBugs(t *testing.T) {
	for _, threads := range []int{1, 2} {
		b, err := cpu.New(cpu.Options{Threads: threads})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		buffer := func(n int) kernels.Buffer {
			buf, err := b.NewBuffer(n)
			if err != nil {
				t.Fatal(err)
			}
			return buf
		}
		w, err := b.Pack(kernels.HostTensor{Name: "w", DType: kernels.Q4_1, Rows: 16, Cols: 32, Data: make([]byte, 320)})
		if err != nil {
			t.Fatal(err)
		}
		cache, err := b.NewCache(kernels.CacheSpec{Layers: 1, NumKVHeads: 1, HeadDim: 16, BlockSize: 4, NumBlocks: 3, DType: kernels.F16})
		if err != nil {
			t.Fatal(err)
		}
		defer cache.Close()
		a := kernels.QKV{NumHeads: 2, NumKVHeads: 1, HeadDim: 16, InvFreq: buffer(8), Scale: 1}
		check := func(what string, batch *kernels.Batch, op func()) {
			t.Helper()
			defer func() {
				if v := recover(); !strings.HasPrefix(fmt.Sprint(v), "BUG: cpu: ") {
					t.Errorf("%s: panic %v, want one that starts %q", what, v, "BUG: cpu: ")
				}
			}()
			if batch != nil {
				b.Begin(batch)
				defer b.End()
			}
			op()
		}
		one := func() *kernels.Batch {
			return &kernels.Batch{Tokens: []int32{3}, Positions: []int32{0}, Slots: []int32{0},
				Seqs: []kernels.BatchSeq{{Len: 1, Blocks: []int32{0}}}, Logits: []int32{0}}
		}
		with := func(change func(*kernels.Batch)) *kernels.Batch {
			batch := one()
			change(batch)
			return batch
		}
		check("short dst", one(), func() { b.MatMul(buffer(15), buffer(32), w, nil, 1) })
		check("short bias", one(), func() { b.MatMul(buffer(16), buffer(32), w, buffer(15), 1) })
		check("negative rows", one(), func() { b.RMSNorm(buffer(8), buffer(8), buffer(8), -1, 8, 0) })
		check("no step", nil, func() { b.Embed(buffer(32), w) })
		check("id too large", with(func(b *kernels.Batch) { b.Tokens[0] = 16 }), func() { b.Embed(buffer(32), w) })
		check("negative id", with(func(b *kernels.Batch) { b.Tokens[0] = -1 }), func() { b.Embed(buffer(32), w) })
		check("logits", with(func(b *kernels.Batch) { b.Logits[0] = 1 }), func() { b.Gather(buffer(32), buffer(32), 32) })
		check("slot", with(func(b *kernels.Batch) { b.Slots[0] = 12 }), func() { b.RopeAndCache(buffer(64), cache, a) })
		check("table", with(func(b *kernels.Batch) { b.Seqs[0].Context = 4 }), func() { b.Attention(buffer(32), buffer(64), cache, a) })
		check("block", with(func(b *kernels.Batch) { b.Seqs[0].Blocks[0] = 3 }), func() { b.Attention(buffer(32), buffer(64), cache, a) })
		wrong := a
		wrong.Layer = 1
		check("layer", one(), func() { b.Attention(buffer(32), buffer(64), cache, wrong) })
	}
}

func TestNewRefusesWhatCannotBe(t *testing.T) {
	for _, o := range []cpu.Options{{Threads: -1}, {Threads: 1 << 20}, {Level: "mmx"}, {Math: 7}} {
		if b, err := cpu.New(o); err == nil {
			b.Close()
			t.Errorf("%+v: no error", o)
		}
	}
}
