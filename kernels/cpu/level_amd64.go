package cpu

import "github.com/klauspost/cpuid/v2"

func init() {
	levels = []level{
		{&avx512, cpuid.CPU.Supports(cpuid.AVX512F, cpuid.AVX512BW, cpuid.AVX512DQ, cpuid.AVX512VL, cpuid.AVX512VNNI)},
		{&avx2, cpuid.CPU.Supports(cpuid.AVX2, cpuid.FMA3, cpuid.F16C)},
		{&generic, true},
	}
}
