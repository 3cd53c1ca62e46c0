package cpu

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// PeakOps returns the multiplications and additions per second of the level's
// int8 products on all threads at once, in registers; where there is no code for
// that, of the tallest matrix kernel on a tile and a panel in the cache.
func (b *Backend) PeakOps() float64 {
	peak := b.kernels.peak
	if peak == nil {
		peak = b.kernelPeak
	}
	return together(b.options.Threads, peak)
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
// memory beyond the first two levels of cache.
func (b *Backend) StreamRate() float64 {
	var a arena
	const each = 64 << 20
	a.grow(each * b.options.Threads)
	defer a.mem.close()
	clear(a.mem.bytes)
	var next atomic.Int64
	return together(b.options.Threads, func() int {
		i := int(next.Add(1)-1) % b.options.Threads
		part := a.mem.bytes[i*each : (i+1)*each]
		var max float32
		for at := 0; at < each; at += 1 << 16 {
			max += b.kernels.max(unsafe.Slice((*float32)(pointer(&part[at])), 1<<14))
		}
		if max != 0 {
			panic("BUG: memory changed")
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
