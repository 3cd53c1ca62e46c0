package cpu

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// PeakOps returns the multiplications and additions per second of the machine's
// int8 products on all threads at once, in registers; where the best level has no
// code for that, of its tallest matrix kernel on a tile and a panel in the cache.
func (b *Backend) PeakOps() float64 {
	best, err := levelNamed("")
	if err != nil {
		panic(err)
	}
	peak := best.peak
	if peak == nil {
		peak = b.kernelPeak
	}
	return together(b.options.Threads, func() (work int) {
		for range 200 { // some 2 ms: a goroutine's start is nothing beside it
			work += peak()
		}
		return work
	})
}

// kernelPeak runs a symmetric matrix kernel.
func (b *Backend) kernelPeak() int {
	const cols, blocks, calls = 576, 576 / quantElems, 20
	var a arena
	h := b.kernels.heights[0]
	a.grow(cols*tileRows + 4*unpackedFloats(cols) + h*blocks*panelRowBytes + 4*h*tileRows)
	scales := cols * tileRows
	panel := scales + 4*unpackedFloats(cols)
	dst := panel + h*blocks*panelRowBytes
	for range calls {
		b.kernels.symmetric[h](a.at(dst), 4*tileRows, a.at(0), a.at(scales), nil, a.at(panel), blocks)
	}
	if err := a.mem.close(); err != nil {
		panic(err)
	}
	return 2 * calls * h * cols * tileRows
}

// StreamRate returns the bytes per second that all threads read together from
// memory, of a piece as large as the default model.
func (b *Backend) StreamRate() float64 {
	best, err := levelNamed("")
	if err != nil {
		panic(err)
	}
	read := best.read
	if read == nil {
		read = func(part []byte) { best.max(unsafe.Slice((*float32)(pointer(unsafe.SliceData(part))), len(part)/4)) }
	}
	each := 96 << 20 / b.options.Threads &^ 511
	var from weightMemory
	all, err := from.take(int64(each * b.options.Threads))
	if err != nil {
		panic(err)
	}
	defer from.close()
	for i := range all {
		all[i] = 1 // else every page is the one page of zeros
	}
	var next atomic.Int64
	return together(b.options.Threads, func() int {
		i := int(next.Add(1)-1) % b.options.Threads
		const call = 1 << 18
		for part := all[i*each : (i+1)*each]; len(part) > 0; part = part[min(call, len(part)):] {
			read(part[:min(call, len(part))])
		}
		return each
	})
}

// together runs f on n threads at once a few times and returns the best rate of
// what it counts, per second.
func together(n int, f func() int) float64 {
	best := 0.0
	for range 10 {
		var work atomic.Int64
		var all sync.WaitGroup
		start := time.Now()
		for range n {
			all.Go(func() { work.Add(int64(f())) })
		}
		all.Wait()
		best = max(best, float64(work.Load())/time.Since(start).Seconds())
	}
	return best
}
