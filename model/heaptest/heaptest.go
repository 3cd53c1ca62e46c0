// Package heaptest measures, for tests, what a function takes of the Go heap.
package heaptest

import (
	"runtime"
	"runtime/metrics"
	"time"
)

// interval is the time between two looks at the heap. What is taken and freed between two
// is not seen.
const interval = 500 * time.Microsecond

// Peak runs f and returns by how many bytes objects on the heap, garbage included, grew
// meanwhile at most. Other goroutines' objects count too.
func Peak(f func()) int64 {
	runtime.GC()
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	read := func() int64 {
		metrics.Read(sample)
		return int64(sample[0].Value.Uint64())
	}
	before := read()
	most := before
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			most = max(most, read())
			select {
			case <-stop:
				return
			case <-time.After(interval):
			}
		}
	}()
	f()
	close(stop)
	<-done
	return most - before
}
