package cpu

import (
	"math"
	"testing"
)

// TestExponentialIsWithinTwoUlp measures each level's e^x over the range of
// softmax weights, all multiples of 2^-10 from minWeight to 0 and a tail of tiny
// arguments, and what lies outside.
func TestExponentialIsWithinTwoUlp(t *testing.T) {
	for _, l := range levels {
		if !l.usable() {
			continue
		}
		var args []float32
		for x := float32(minWeight); x <= 0; x += 0x1p-10 {
			args = append(args, x)
		}
		for i := range 60 {
			args = append(args, -float32(math.Ldexp(1, -i)))
		}
		for len(args)%tileRows != 0 {
			args = append(args, 0)
		}
		got := append([]float32{}, args...)
		var sums lanes
		l.kernels.exp(got, 0, &sums)
		worst := 0.0
		for i, x := range args {
			want := math.Exp(float64(x))
			ulp := float64(math.Nextafter32(float32(want), 2)) - float64(float32(want))
			worst = max(worst, math.Abs(float64(got[i])-want)/ulp)
		}
		if worst > 2 {
			t.Errorf("%s: off by %.2f ulp", l.kernels.name, worst)
		}
		t.Logf("%s: at most %.2f ulp", l.kernels.name, worst)

		inf, nan := float32(math.Inf(1)), float32(math.NaN())
		odd := make([]float32, tileRows)
		copy(odd, []float32{-inf, -1e30, -100, minWeight * 1.001, nan, 0})
		l.kernels.exp(odd, 0, &lanes{})
		for i, want := range []float32{0, 0, 0, 0, nan, 1} {
			if odd[i] != want && !(want != want && odd[i] != odd[i]) {
				t.Errorf("%s: argument %d gives %v, want %v", l.kernels.name, i, odd[i], want)
			}
		}
	}
}

// TestSiLUTails checks arguments that no distribution visits.
func TestSiLUTails(t *testing.T) {
	inf := float32(math.Inf(1))
	gates := []float32{-inf, -1e30, -200, -90, -88.72, -60, 0, 60, 88.72, 90, 200, 1e30, inf, float32(math.NaN()), 1, -1}
	for _, l := range levels {
		if !l.usable() {
			continue
		}
		up, got := make([]float32, len(gates)), make([]float32, len(gates))
		for i := range up {
			up[i] = 1
		}
		l.kernels.silu(got, gates, up)
		for i, g := range gates {
			want := float64(g) / (1 + math.Exp(-float64(g)))
			// exp within 2 ulp, a sum and a quotient, or lost below 2^-115 of the gate.
			tol := 6*0x1p-24*math.Abs(want) + math.Abs(float64(g))*0x1p-115
			if math.IsNaN(want) && (got[i] != got[i] || g == -inf && got[i] == 0) || math.IsInf(want, 1) && got[i] == inf {
				continue
			}
			if !(math.Abs(float64(got[i])-want) <= tol) {
				t.Errorf("%s: silu(%v) = %v, want %v", l.kernels.name, g, got[i], want)
			}
		}
	}
}
