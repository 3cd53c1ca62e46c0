package cpu_test

import (
	"fmt"
	"testing"

	"waybill/kernels"
	"waybill/kernels/cpu"
	"waybill/kernels/kerneltest"
)

// small is a model of every kind of op that takes no time to make.
var small = kerneltest.Shape{
	Layers: 2, Hidden: 256, Inner: 512, NumHeads: 8, NumKVHeads: 2, HeadDim: 32, Vocabulary: 1000,
	Linear: kernels.Q4_1, Embedding: kernels.Q8_0,
}

// TestStepAllocatesNothing holds once buffers have grown to the step's size.
func TestStepAllocatesNothing(t *testing.T) {
	for _, level := range cpu.Levels() {
		for _, kv := range []kernels.DType{kernels.F32, kernels.F16, kernels.BF16} {
			be, err := cpu.New(cpu.Options{Threads: 2, Level: level})
			if err != nil {
				t.Fatal(err)
			}
			defer be.Close()
			s := small
			s.KV = kv
			d := kerneltest.NewDecoder(t, be, s, 40, 3, 12)
			prefill, decode := kerneltest.Prefill(40), kerneltest.Decode(3, 45)
			step := func() {
				d.Step(t, prefill)
				d.Step(t, decode)
			}
			step()
			if n := testing.AllocsPerRun(5, step); n != 0 {
				t.Errorf("%s, %v cache: two steps allocate %v times", level, kv, n)
			}
		}
	}
}

// TestWeightsTakeNoMoreThanTheFile holds packed sizes against the file's.
func TestWeightsTakeNoMoreThanTheFile(t *testing.T) {
	be, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer be.Close()
	for d := kernels.F32; d.Valid(); d++ {
		h := kernels.HostTensor{Name: fmt.Sprint(d), DType: d, Rows: 960, Cols: 768, Data: make([]byte, 960*d.RowBytes(768))}
		w, err := be.Pack(h)
		if err != nil {
			t.Fatal(err)
		}
		if limit := int64(len(h.Data)) * 115 / 100; w.Bytes() > limit {
			t.Errorf("%v: %d bytes packed, %d in the file, limit %d", d, w.Bytes(), len(h.Data), limit)
		}
	}
}
