package cpu

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// countTask counts how often each chunk ran.
type countTask struct {
	ran   []atomic.Int32
	panic int // chunk that panics, or -1
	wait  time.Duration
}

// run counts.
func (c *countTask) run(_, chunk int) {
	if chunk == c.panic {
		panic("BUG: cpu: a test's chunk")
	}
	for start := time.Now(); time.Since(start) < c.wait; {
	}
	c.ran[chunk].Add(1)
}

func TestPoolRunsEveryChunkOnce(t *testing.T) {
	for _, threads := range []int{1, 2, 5} {
		p := newPool(threads)
		for step := range 200 {
			p.begin()
			for _, chunks := range []int{0, 1, 2, 3, 17, 100} {
				c := &countTask{ran: make([]atomic.Int32, chunks), panic: -1, wait: time.Duration(step%3) * time.Microsecond}
				p.run(c, chunks)
				for i := range c.ran {
					if n := c.ran[i].Load(); n != 1 {
						t.Fatalf("%d threads, %d chunks: chunk %d ran %d times", threads, chunks, i, n)
					}
				}
			}
			p.end()
		}
		p.close()
	}
}

// TestPoolWorkersHelp needs the workers to take part: a chunk of the owner's
// waits until another thread has begun one.
func TestPoolWorkersHelp(t *testing.T) {
	p := newPool(2)
	defer p.close()
	p.begin()
	defer p.end()
	r := &rendezvous{}
	done := make(chan struct{})
	go func() {
		p.run(r, 2)
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("two chunks that wait for each other did not run at once on two threads")
	}
}

// rendezvous is a task whose chunks wait for each other.
type rendezvous struct{ arrived atomic.Int32 }

func (r *rendezvous) run(_, _ int) {
	for r.arrived.Add(1); r.arrived.Load() < 2; {
		runtime.Gosched()
	}
}

func TestPoolPassesPanicsToTheOwner(t *testing.T) {
	p := newPool(3)
	defer p.close()
	for i := range 50 {
		p.begin()
		c := &countTask{ran: make([]atomic.Int32, 40), panic: i % 40, wait: 20 * time.Microsecond}
		if v := panicOf(func() { p.run(c, 40) }); v == nil {
			t.Fatalf("chunk %d panicked on some thread, the owner saw nothing", i%40)
		}
		p.end()
		// The pool is still good, once the task that failed has run out.
		p.begin()
		c = &countTask{ran: make([]atomic.Int32, 10), panic: -1}
		p.run(c, 10)
		for j := range c.ran {
			if n := c.ran[j].Load(); n != 1 {
				t.Fatalf("after a panic: chunk %d ran %d times", j, n)
			}
		}
		p.end()
	}
}

// panicOf returns what f panics with.
func panicOf(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}

// TestPoolFinishesWithoutWorkers gives the workers nothing to run on.
func TestPoolFinishesWithoutWorkers(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	p := newPool(4)
	defer p.close()
	start := time.Now()
	for range 1000 {
		p.begin()
		c := &countTask{ran: make([]atomic.Int32, 3), panic: -1}
		p.run(c, 3)
		p.end()
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Fatalf("1000 steps of almost nothing took %v", d)
	}
}

func TestPoolAllocatesNothing(t *testing.T) {
	p := newPool(2)
	defer p.close()
	c := &countTask{ran: make([]atomic.Int32, 8), panic: -1}
	if n := testing.AllocsPerRun(100, func() {
		p.begin()
		p.run(c, 8)
		p.end()
	}); n != 0 {
		t.Fatalf("a step allocates %v times", n)
	}
}
