package cpu

import (
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns what this process has used.
func cpuTime(t *testing.T) time.Duration {
	var r unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func TestPoolIsIdleBetweenSteps(t *testing.T) {
	p := newPool(4)
	defer p.close()
	p.begin()
	c := &countTask{ran: make([]atomic.Int32, 100), panic: -1, wait: 10 * time.Microsecond}
	p.run(c, 100)
	p.end()
	time.Sleep(20 * time.Millisecond) // workers see the end
	before := cpuTime(t)
	time.Sleep(300 * time.Millisecond)
	// One worker that spins would use all of the 300 ms, on any machine that runs
	// it at all.
	if used := cpuTime(t) - before; used > 30*time.Millisecond {
		t.Fatalf("used %v in 300 ms between steps", used)
	}
}
