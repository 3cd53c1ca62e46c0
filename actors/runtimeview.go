package actors

import (
	"math"
	"runtime"
	"runtime/metrics"
	"sort"
)

// runtimeNames are what is read of the Go runtime at a sample.
var runtimeNames = []string{
	"/sched/goroutines:goroutines",
	"/gc/cycles/total:gc-cycles",
	"/memory/classes/heap/objects:bytes",
	"/memory/classes/total:bytes",
	"/cpu/classes/total:cpu-seconds",
	"/cpu/classes/idle:cpu-seconds",
	"/cpu/classes/gc/total:cpu-seconds",
	"/gc/heap/allocs:objects",
	"/sched/latencies:seconds",
	"/sched/pauses/total/gc:seconds",
}

// runtimeWindow reads the Go runtime's own figures; quantiles are over the time
// since the reading before.
type runtimeWindow struct {
	samples []metrics.Sample
	before  map[string][]uint64 // histograms' counts
}

// view reads.
func (w *runtimeWindow) view() RuntimeView {
	if w.samples == nil {
		w.before = map[string][]uint64{}
		for _, n := range runtimeNames {
			w.samples = append(w.samples, metrics.Sample{Name: n})
		}
	}
	metrics.Read(w.samples)
	whole := func(i int) int64 {
		if w.samples[i].Value.Kind() != metrics.KindUint64 {
			return 0
		}
		return int64(w.samples[i].Value.Uint64())
	}
	seconds := func(i int) float64 {
		if w.samples[i].Value.Kind() != metrics.KindFloat64 {
			return 0
		}
		return w.samples[i].Value.Float64()
	}
	v := RuntimeView{
		Goroutines: whole(0), Procs: runtime.GOMAXPROCS(0), GCCycles: whole(1), HeapBytes: whole(2), TotalBytes: whole(3),
		CPUSeconds: seconds(4) - seconds(5), Allocations: whole(7),
	}
	if v.CPUSeconds > 0 {
		v.GCCPUShare = seconds(6) / v.CPUSeconds
	}
	v.SchedP50Us, v.SchedP99Us = w.quantiles(8)
	_, v.GCPauseP99 = w.quantiles(9)
	return v
}

// quantiles returns p50 and p99 in microseconds of what came since the last call.
func (w *runtimeWindow) quantiles(i int) (p50, p99 float64) {
	if w.samples[i].Value.Kind() != metrics.KindFloat64Histogram {
		return 0, 0
	}
	h := w.samples[i].Value.Float64Histogram()
	before := w.before[w.samples[i].Name]
	if len(before) != len(h.Counts) {
		before = make([]uint64, len(h.Counts))
	}
	var total uint64
	for k, n := range h.Counts {
		total += n - before[k]
	}
	at := func(q float64) float64 {
		want, seen := uint64(q*float64(total-1))+1, uint64(0)
		for k, n := range h.Counts {
			if seen += n - before[k]; seen >= want {
				if up := h.Buckets[k+1]; !math.IsInf(up, 1) {
					return up * 1e6
				}
				return h.Buckets[k] * 1e6
			}
		}
		return 0
	}
	if total > 0 {
		p50, p99 = at(.5), at(.99)
	}
	w.before[w.samples[i].Name] = append(before[:0], h.Counts...)
	return p50, p99
}

// quantiles returns p50 and p99 of v, 0 without values.
func quantiles(v []float64) (p50, p99 float64) {
	if len(v) == 0 {
		return 0, 0
	}
	sort.Float64s(v)
	return v[(len(v)-1)/2], v[(len(v)-1)*99/100]
}
