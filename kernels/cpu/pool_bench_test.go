package cpu

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// arrival is a task whose chunks wait until the other thread is there.
type arrival struct{ there atomic.Int32 }

func (a *arrival) run(_, _ int) {
	for a.there.Add(1); a.there.Load() < 2; {
		spin(1)
	}
}

// BenchmarkPoolWake measures the owner's cost of begin with a parked worker, and
// how long after it the worker works.
func BenchmarkPoolWake(b *testing.B) {
	p := newPool(2)
	defer p.close()
	var begun, arrived []time.Duration
	for b.Loop() {
		time.Sleep(time.Millisecond) // parked
		p.stalls = stalls{}
		a := &arrival{}
		start := time.Now()
		p.begin()
		begun = append(begun, time.Since(start))
		p.run(a, 2)
		arrived = append(arrived, time.Since(start))
		p.end()
	}
	slices.Sort(begun)
	slices.Sort(arrived)
	b.ReportMetric(float64(begun[b.N/2].Nanoseconds()), "ns-begin-p50")
	b.ReportMetric(float64(arrived[b.N/2].Nanoseconds()), "ns-arrived-p50")
	b.ReportMetric(float64(arrived[b.N*9/10].Nanoseconds()), "ns-arrived-p90")
}

// BenchmarkPoolRun measures a task of two chunks of nothing within a step: what a
// barrier costs.
func BenchmarkPoolRun(b *testing.B) {
	p := newPool(2)
	defer p.close()
	c := &countTask{ran: make([]atomic.Int32, 8), panic: -1}
	p.begin()
	defer p.end()
	for b.Loop() {
		p.run(c, 8)
	}
}
