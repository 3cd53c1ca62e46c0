package bench

import (
	"math"
	"math/rand/v2"
	"time"
)

// rateChange is a moment at which a ramp reaches the next whole request rate.
type rateChange struct {
	RPS  int           `json:"rps"`
	From time.Duration `json:"-"` // since the start
}

// schedule returns when each request is due, since the start. All at once if the
// rate is infinite; else gaps are gamma-distributed with the burstiness as shape
// and the rate's inverse as mean (1: Poisson arrivals, +Inf: constant gaps), and a
// constant rate is rescaled so that the last request is due at exactly n/rate. A
// ramp's rate grows with the request's index and is not rescaled.
func (o *Options) schedule(rng *rand.Rand) ([]time.Duration, []rateChange) {
	n := o.NumPrompts
	due := make([]time.Duration, n)
	if o.closedLoop() {
		return due, nil
	}
	at := make([]float64, n) // seconds
	var sum float64
	for i := range at {
		sum += gap(rng, o.rate(i), o.Burstiness)
		at[i] = sum
	}
	scale := 1.0
	if o.RampUp == "" && sum > 0 {
		scale = float64(n) / o.RequestRate / sum
	}
	var changes []rateChange
	last := -1
	for i := range due {
		due[i] = time.Duration(at[i] * scale * float64(time.Second))
		if whole := int(o.rate(i)); o.RampUp != "" && whole > last {
			last = whole
			changes = append(changes, rateChange{whole, due[i]})
		}
	}
	return due, changes
}

// rate returns the request rate at the i-th request.
func (o *Options) rate(i int) float64 {
	progress := float64(i) / float64(max(o.NumPrompts-1, 1))
	switch o.RampUp {
	case "linear":
		// A ramp from 0 would wait for ever: it starts with the rate of the first
		// request that has one.
		if o.RampUpStart == 0 && i == 0 {
			progress = 1 / float64(max(o.NumPrompts-1, 1))
		}
		return o.RampUpStart + (o.RampUpEnd-o.RampUpStart)*progress
	case "exponential":
		return o.RampUpStart * math.Pow(o.RampUpEnd/o.RampUpStart, progress)
	}
	return o.RequestRate
}

// gap draws the seconds between two requests.
func gap(rng *rand.Rand, rate, burstiness float64) float64 {
	if math.IsInf(burstiness, 1) {
		return 1 / rate
	}
	return gamma(rng, burstiness) / (rate * burstiness)
}

// gamma draws from a gamma distribution of the given shape and scale 1.
// "A simple method for generating gamma variables", ACM TOMS 26(3), 2000.
func gamma(rng *rand.Rand, shape float64) float64 {
	if shape < 1 {
		// Section 6: a variable of shape + 1, pulled towards zero.
		return gamma(rng, shape+1) * math.Pow(1-rng.Float64(), 1/shape)
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := rng.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		if math.Log(1-rng.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}
