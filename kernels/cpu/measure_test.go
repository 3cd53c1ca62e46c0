package cpu_test

import (
	"testing"

	"waybill/kernels/cpu"
	"waybill/kernels/kerneltest"
)

// BenchmarkOps measures every op of every level on all threads, against what
// their memory and their int8 products reach in the same run.
func BenchmarkOps(b *testing.B) {
	for _, level := range cpu.Levels() {
		b.Run(level, func(b *testing.B) {
			be, err := cpu.New(cpu.Options{Level: level})
			if err != nil {
				b.Fatal(err)
			}
			defer be.Close()
			y := kerneltest.Yardstick{BytesPerSecond: be.StreamRate(), OpsPerSecond: be.PeakOps()}
			b.Logf("%d threads: read %.1f GB/s, int8 products %.0f GOP/s", be.Threads(), y.BytesPerSecond/1e9, y.OpsPerSecond/1e9)
			kerneltest.Measure(b, be, y)
		})
	}
}
