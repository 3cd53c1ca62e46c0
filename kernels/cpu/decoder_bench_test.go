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
