package cpu_test

import (
	"testing"

	"waybill/kernels"
	"waybill/kernels/cpu"
	"waybill/kernels/kerneltest"
)

// forced returns a constructor of a backend with the given options.
func forced(o cpu.Options) func() (kernels.Backend, error) {
	return func() (kernels.Backend, error) { return cpu.New(o) }
}

// TestKernels forces each level in turn. Levels of assembly agree bit for bit with
// each other where kerneltest compares: they keep the same lanes.
func TestKernels(t *testing.T) {
	for _, level := range cpu.Levels() {
		for _, m := range []cpu.Math{cpu.Int8, cpu.F32} {
			t.Run(level+" "+m.String(), func(t *testing.T) {
				t.Parallel()
				c := kerneltest.Config{
					New:    forced(cpu.Options{Threads: 1, Math: m, Level: level}),
					Math:   m,
					Exact:  true,
					Others: []func() (kernels.Backend, error){forced(cpu.Options{Threads: 2, Math: m, Level: level})},
				}
				if best := cpu.Levels()[0]; level != "generic" && best != level {
					c.Others = append(c.Others, forced(cpu.Options{Threads: 1, Math: m, Level: best}))
				}
				if m == cpu.F32 {
					kerneltest.RunProducts(t, c)
				} else {
					kerneltest.Run(t, c)
				}
			})
		}
	}
}
