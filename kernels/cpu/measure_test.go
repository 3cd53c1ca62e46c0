package cpu_test

import (
	"testing"
	"time"

	"waybill/kernels/cpu"
	"waybill/kernels/kerneltest"
)

// BenchmarkOps measures every op of every level on one thread against what one
// core does in the same run.
func BenchmarkOps(b *testing.B) {
	for _, level := range cpu.Levels() {
		b.Run(level, func(b *testing.B) {
			be, err := cpu.New(cpu.Options{Threads: 1, Level: level})
			if err != nil {
				b.Fatal(err)
			}
			defer be.Close()
			y := kerneltest.Yardstick{BytesPerSecond: copyRate(), OpsPerSecond: be.PeakOps()}
			b.Logf("yardsticks: copy %.1f GB/s, matrix kernel in cache %.0f GFLOP/s", y.BytesPerSecond/1e9, y.OpsPerSecond/1e9)
			kerneltest.Measure(b, be, y)
		})
	}
}

// copyRate returns the bytes per second that copy reads and writes, beyond the
// first two levels of cache.
func copyRate() float64 {
	from, to := make([]byte, 32<<20), make([]byte, 32<<20)
	copy(to, from)
	best := time.Hour
	for range 5 {
		start := time.Now()
		copy(to, from)
		best = min(best, time.Since(start))
	}
	return 2 * float64(len(from)) / best.Seconds()
}
