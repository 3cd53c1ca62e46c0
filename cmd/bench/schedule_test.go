package bench

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

var inf = math.Inf(1)

func dueTimes(n int, rate, burstiness float64, seed uint64) []time.Duration {
	o := Options{NumPrompts: n, RequestRate: rate, Burstiness: burstiness}
	due, _ := o.schedule(rand.New(rand.NewPCG(seed, 1)))
	return due
}

func TestOpenLoopEndsExactlyAtRequestsOverRate(t *testing.T) {
	for _, burstiness := range []float64{0.2, 1, 5, inf} {
		due := dueTimes(500, 50, burstiness, 3)
		if last := due[len(due)-1]; (last - 10*time.Second).Abs() > time.Microsecond {
			t.Errorf("burstiness %g: last request at %v, want 10s", burstiness, last)
		}
		for i := 1; i < len(due); i++ {
			if due[i] < due[i-1] {
				t.Fatalf("burstiness %g: request %d is due before its predecessor", burstiness, i)
			}
		}
	}
}

func TestGapsHaveTheShapeAskedFor(t *testing.T) {
	const n = 40000
	for _, shape := range []float64{0.3, 1, 4} {
		rng := rand.New(rand.NewPCG(7, 7))
		gaps := make(series, n)
		for i := range gaps {
			gaps[i] = gap(rng, 20, shape)
		}
		// Relative standard errors over n samples: of the mean √(1/shape/n), of the
		// variation about ½·√((2 + 6/shape)/n): 0.9 % and 1.2 % at shape 0.3. The limit
		// is five times the larger.
		if m := gaps.mean() * 20; math.Abs(m-1) > 0.06 {
			t.Errorf("shape %g: mean gap %g of the wanted one", shape, m)
		}
		if cv := gaps.std() / gaps.mean() * math.Sqrt(shape); math.Abs(cv-1) > 0.06 {
			t.Errorf("shape %g: variation %g of the wanted one", shape, cv)
		}
	}
}

func TestConstantArrivalsAndAllAtOnce(t *testing.T) {
	for i, d := range dueTimes(5, 10, inf, 1) {
		if want := time.Duration(i+1) * 100 * time.Millisecond; (d - want).Abs() > time.Microsecond {
			t.Errorf("request %d is due at %v, want %v", i, d, want)
		}
	}
	for i, d := range dueTimes(5, inf, 1, 1) {
		if d != 0 {
			t.Errorf("request %d is due at %v, want at once", i, d)
		}
	}
}

func TestTheSameSeedGivesTheSameArrivals(t *testing.T) {
	a, b, c := dueTimes(50, 10, 1, 1), dueTimes(50, 10, 1, 1), dueTimes(50, 10, 1, 2)
	same := true
	for i := range a {
		if a[i] != b[i] {
			t.Fatal("two schedules of one seed differ")
		}
		same = same && a[i] == c[i]
	}
	if same {
		t.Fatal("two seeds give the same schedule")
	}
}

func TestRampsRise(t *testing.T) {
	for _, c := range []struct {
		kind        string
		start, half float64
	}{{"linear", 10, 25}, {"exponential", 10, 20}, {"linear", 0, 20}} {
		o := Options{NumPrompts: 101, RequestRate: inf, Burstiness: inf, RampUp: c.kind, RampUpStart: c.start, RampUpEnd: 40}
		due, changes := o.schedule(rand.New(rand.NewPCG(1, 1)))
		if got := 1 / (due[50] - due[49]).Seconds(); math.Abs(got-c.half) > 0.01 {
			t.Errorf("%s from %g: %g requests/s half way, want %g", c.kind, c.start, got, c.half)
		}
		if got := 1 / (due[100] - due[99]).Seconds(); math.Abs(got-40) > 0.01 {
			t.Errorf("%s from %g: %g requests/s at the end, want 40", c.kind, c.start, got)
		}
		if last := changes[len(changes)-1]; last.RPS != 40 || last.From != due[100] {
			t.Errorf("last rate change %+v", last)
		}
	}
}
