package cpu

import "github.com/klauspost/cpuid/v2"

// avx512Features are what the level avx512vnni uses.
var avx512Features = []cpuid.FeatureID{cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL, cpuid.AVX512VNNI}

// init runs after those of the kernel sets: files come in the order of their names.
func init() {
	levels = append(tileLevels(),
		level{&avx512, supports(avx512Features...)},
		level{&avx2, supports(cpuid.AVX2, cpuid.FMA3, cpuid.F16C)},
		level{&generic, always})
}

// supports returns whether the CPU and the kernel support all features.
func supports(features ...cpuid.FeatureID) func() bool {
	return func() bool { return cpuid.CPU.Supports(features...) }
}

func always() bool { return true }
