package cpu_test

import (
	"fmt"
	"os"
	"testing"

	"waybill/kernels"
	"waybill/kernels/cpu"
	"waybill/kernels/kerneltest"
)

// BenchmarkDecoder runs steps of SmolLM2-135M's shape and reports tokens per
// second.
func BenchmarkDecoder(b *testing.B) {
	for _, threads := range []int{1, 2} {
		be, err := cpu.New(cpu.Options{Threads: threads, Level: os.Getenv("WAYBILL_CPU")})
		if err != nil {
			b.Fatal(err)
		}
		defer be.Close()
		d := kerneltest.NewDecoder(b, be, kerneltest.SmolLM2, 512, 16, 16*17)
		run := func(name string, tokens int, batch *kernels.Batch) {
			b.Run(fmt.Sprintf("%s/threads=%d", name, threads), func(b *testing.B) {
				b.ReportAllocs()
				d.Step(b, batch)
				for b.Loop() {
					d.Step(b, batch)
				}
				b.ReportMetric(float64(b.N*tokens)/b.Elapsed().Seconds(), "tok/s")
			})
		}
		for _, rows := range []int{1, 2, 4, 8, 16} {
			run(fmt.Sprintf("decode=%d", rows), rows, kerneltest.Decode(rows, 200))
		}
		run("prefill=64", 64, kerneltest.Prefill(64))
		run("prefill=512", 512, kerneltest.Prefill(512))
	}
}

// BenchmarkContext runs steps behind long contexts, where reading keys and values
// outweighs reading weights. "attention" is 30 layers' of the op alone.
func BenchmarkContext(b *testing.B) {
	be, err := cpu.New(cpu.Options{Level: os.Getenv("WAYBILL_CPU")})
	if err != nil {
		b.Fatal(err)
	}
	defer be.Close()
	const rows, longest = 8, 2048
	d := kerneltest.NewDecoder(b, be, kerneltest.SmolLM2, 1024, rows, rows*(longest/16+1))
	all := kerneltest.Decode(rows, longest)
	for _, seq := range all.Seqs {
		fill := &kernels.Batch{Seqs: []kernels.BatchSeq{{Len: longest, Blocks: seq.Blocks}}}
		for p := range longest {
			fill.Tokens, fill.Positions = append(fill.Tokens, 0), append(fill.Positions, int32(p))
			fill.Slots = append(fill.Slots, seq.Blocks[p/16]*16+int32(p%16))
		}
		d.Remember(b, fill)
	}
	run := func(name string, tokens int, f func()) {
		b.Run(name, func(b *testing.B) {
			f()
			for b.Loop() {
				f()
			}
			seconds := b.Elapsed().Seconds() / float64(b.N)
			b.ReportMetric(seconds*1e3, "ms/step")
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(tokens)/seconds, "tok/s")
		})
	}
	for _, n := range []int{1, rows} {
		for _, context := range []int{128, 512, 1024, longest - 1} {
			batch := kerneltest.Decode(n, context)
			name := fmt.Sprintf("rows=%d/context=%d/", n, context)
			run(name+"step", n, func() { d.Step(b, batch) })
			run(name+"attention", n, func() { d.Attend(b, batch) })
		}
	}
	run("prefill=1024/step", 1024, func() { d.Step(b, kerneltest.Prefill(1024)) })
	run("prefill=1024/attention", 1024, func() { d.Attend(b, kerneltest.Prefill(1024)) })
}
