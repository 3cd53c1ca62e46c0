package cpu

import (
	"sync"
	"sync/atomic"
	"time"
)

// task is one op's work, cut into chunks that may run in any order and on any
// thread. Tasks are reused; nothing is allocated for an op.
type task interface {
	// run does chunk number chunk. thread is 0 for the step's owner and tells
	// which scratch memory to use.
	run(thread, chunk int)
}

// maxChunks is the largest number of chunks of one task: the claim word has 16
// bits for it. Callers cut coarser; at 5 µs a chunk this is a third of a second.
const maxChunks = 1<<16 - 1

// pool is the compute threads of one backend. The caller of run is thread 0 and
// can finish every task alone; the others help while a step is open (begin to
// end) and are parked otherwise.
//
// A task's chunks are claimed from one word, generation | chunks | next, by
// compare-and-swap. A worker that slept through any number of tasks thus either
// claims a chunk of the task that is current now or fails.
type pool struct {
	threads int

	_     [64]byte // each of the words below has a cache line of its own
	claim atomic.Uint64
	_     [64]byte
	done  atomic.Int64 // chunks of the current task that workers finished
	_     [64]byte
	gate  gate // open between begin and end
	_     [64]byte

	// current may be read only by the holder of an unfinished claim: run changes
	// it when all chunks of the task before are done.
	current task
	failure atomic.Pointer[failure]

	// stalls decides whether the workers are worth having, looked at before every
	// reviewEvery-th of the tasks of a step; both are the owner's alone.
	stalls stalls
	tasks  int
	inStep bool // between begin and end; the owner's alone

	stopped sync.WaitGroup
}

// The states of a gate.
const (
	gateShut uint32 = iota
	gateOpen
	gateClosed // for good
)

// failure is a panic of a worker, to be raised again on the owner's goroutine.
type failure struct{ value any }

// newPool starts threads-1 workers.
func newPool(threads int) *pool {
	p := &pool{threads: threads}
	for i := 1; i < threads; i++ {
		p.stopped.Go(func() {
			for p.gate.wait() != gateClosed {
				for !p.help(i) {
				}
			}
		})
	}
	return p
}

// close ends the workers and waits for them.
func (p *pool) close() {
	p.gate.set(gateClosed)
	p.stopped.Wait()
}

// reviewEvery keeps the clock, some 40 ns, out of most of the 200 tasks of a step.
const reviewEvery = 4

// begin wakes the workers. It does not wait for them.
func (p *pool) begin() {
	if p.threads == 1 {
		return
	}
	p.inStep = true
	if p.stalls.begin(time.Now()) {
		p.gate.set(gateOpen)
	}
}

// end lets the workers park.
func (p *pool) end() {
	p.inStep = false
	if p.helped() {
		p.stalls.end(time.Now())
		p.gate.set(gateShut)
	}
}

// review parks workers that stall, and wakes them when their rest is over.
func (p *pool) review(now time.Time) {
	if !p.helped() {
		if p.stalls.begin(now) {
			p.gate.set(gateOpen)
		}
	} else if !p.stalls.judge(now) {
		p.gate.set(gateShut)
	}
}

// helped reports whether a step is open that workers help with.
func (p *pool) helped() bool { return p.gate.state.Load() == gateOpen }

// run does all chunks of t and returns when they are done.
func (p *pool) run(t task, chunks int) {
	if chunks > maxChunks {
		panic(bug("a task of %d chunks", chunks))
	}
	if p.inStep {
		if p.tasks++; p.tasks%reviewEvery == 0 {
			p.review(time.Now())
		}
	}
	if p.threads == 1 || chunks <= 1 || !p.helped() {
		for i := range chunks {
			t.run(0, i)
		}
		return
	}
	p.current = t
	p.done.Store(0)
	p.failure.Store(nil)
	generation := p.claim.Load()>>32 + 1
	p.claim.Store(generation<<32 | uint64(chunks)<<16)
	begun, over := 0, false
	defer func() {
		if !over { // a chunk of the owner's panicked
			p.abandon(begun)
		}
	}()
	for {
		i, ok := p.take()
		if !ok {
			break
		}
		begun++
		t.run(0, i)
	}
	over = true
	p.await(chunks - begun)
	if f := p.failure.Load(); f != nil {
		panic(f.value)
	}
}

// await returns when workers have finished n chunks.
func (p *pool) await(n int) {
	var wait waiter
	for p.done.Load() != int64(n) {
		wait.pause()
	}
	if wait.rounds >= 8 {
		if d := time.Since(wait.since); d > spinTime {
			p.stalls.waited += d
		}
	}
}

// abandon takes back the chunks that nobody has claimed and waits for the
// workers' last ones. begun is how many the owner claimed.
func (p *pool) abandon(begun int) {
	for {
		c := p.claim.Load()
		chunks, next := c>>16&0xffff, c&0xffff
		if p.claim.CompareAndSwap(c, c&^0xffff|chunks) {
			p.await(int(min(next, chunks)) - begun)
			return
		}
	}
}

// take claims the next chunk of the current task.
func (p *pool) take() (chunk int, ok bool) {
	for {
		c := p.claim.Load()
		next := c & 0xffff
		if next >= c>>16&0xffff {
			return 0, false
		}
		if p.claim.CompareAndSwap(c, c+1) {
			return int(next), true
		}
	}
}

// help works as thread i until the step ends, and returns true then. It returns
// false after a panic, which it leaves to the owner.
func (p *pool) help(i int) (over bool) {
	holds := false
	defer func() {
		if v := recover(); v != nil {
			p.failure.CompareAndSwap(nil, &failure{v})
			if holds {
				p.done.Add(1)
			}
		}
	}()
	var wait waiter
	for {
		if chunk, ok := p.take(); ok {
			holds = true
			p.current.run(i, chunk)
			holds = false
			p.done.Add(1)
			wait = waiter{}
			continue
		}
		if !p.helped() {
			return true
		}
		wait.pause()
	}
}
