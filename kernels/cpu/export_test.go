package cpu

import "time"

// PeakOps returns the multiplications and additions per second of the tallest
// symmetric matrix kernel on one tile and one panel that stay in the cache.
func (b *Backend) PeakOps() float64 {
	const cols, blocks = 576, 576 / quantElems
	var a arena
	h := b.kernels.floatHeights[0]
	a.grow(cols*tileRows + 4*unpackedFloats(cols) + h*blocks*panelRowBytes + 4*h*tileRows)
	scales := cols * tileRows
	panel := scales + 4*unpackedFloats(cols)
	dst := panel + h*blocks*panelRowBytes
	best := time.Hour
	for range 20 {
		start := time.Now()
		const calls = 20
		for range calls {
			b.kernels.symmetric[h](a.at(dst), 4*tileRows, a.at(0), a.at(scales), nil, a.at(panel), blocks)
		}
		best = min(best, time.Since(start)/calls)
	}
	if err := a.mem.close(); err != nil {
		panic(err)
	}
	return 2 * float64(h*cols*tileRows) / best.Seconds()
}
