//go:build linux

package actors

import (
	"io"
	"sync"
	"syscall"
	"testing"
	"time"

	"waybill/actors/sched"
	"waybill/kernels"
)

// instantDevice computes nothing: what a step costs is what the actors cost.
type instantDevice struct {
	token int32
	plan  *sched.Plan
	keep  []bool
}

func (d *instantDevice) Launch(p *sched.Plan, keep []bool, _ []sched.Result) {
	d.plan, d.keep = p, append(d.keep[:0], keep...)
}

func (d *instantDevice) Wait(results []sched.Result, _ []*tokenExtras, _ kernels.Meanwhile) error {
	for i := range results {
		results[i] = sched.Result{Dropped: !d.keep[i], Token: d.token}
	}
	return nil
}

func (*instantDevice) Prepare(*sched.Plan, bool) {}
func (*instantDevice) Rest()                     {}

func (*instantDevice) Idle() (device, host time.Duration) { return 0, 0 }
func (*instantDevice) Close() error                       { return nil }

// cpuNs returns the processor time that this process has used.
func cpuNs(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkTokenThroughActors runs 8 streams on a device that takes no time. Its
// processor time per token, with and without the build tag nostamps, shows what
// observing a token costs, on a machine of any busyness.
func BenchmarkTokenThroughActors(b *testing.B) {
	d := &instantDevice{}
	cfg := testConfig()
	cfg.OnCPU, cfg.Dump = false, io.Discard
	cfg.Wrap = func(Executor) Executor { return d }
	e := startEngine(b, cfg)
	d.token = e.tok.Encode(nil, "a", EncodeOptions{})[0]
	const streams, tokens = 8, 1000
	run := func() {
		var wg sync.WaitGroup
		for i := range streams {
			r := e.request(longIDs(10+i), tokens)
			r.Encoder = quietEncoder{}
			w := e.Submit(r)
			wg.Go(func() {
				defer r.ResponseDone(e.Engine)
				if err := w.First(); err != nil {
					b.Error(err)
				} else if _, err := w.WriteTo(io.Discard, &testConn{}); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
	}
	run()
	b.ResetTimer()
	from := cpuNs(b)
	for range b.N {
		run()
	}
	b.ReportMetric(float64(cpuNs(b)-from)/float64(b.N*streams*tokens), "cpu-ns/token")
}
