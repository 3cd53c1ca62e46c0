//go:build cuda

package cuda

import "waybill/kernels/cuda/driver"

// Sizes of src/gated.cu.
const (
	// gatedRows and gatedCols are those of y that a cluster computes in a tile, gatedDeep the elements of a row of x that
	// it takes at a time.
	gatedRows, gatedCols, gatedDeep = 256, 88, 64
	// gatedThreads are a block's.
	gatedThreads = 384
	// gatedShared is a block's shared memory: five stages, two boxes of y, 12 barriers, and what aligns them.
	gatedShared = 5*(gatedRows/2+2*gatedCols)*gatedDeep*2 + 2*64*gatedCols*2 + 12*8 + 1024
)

// gatedShare is how well src/gated.cu must do to be faster than cuBLASLt and the activation after it; see tiled.
const gatedShare = 0.95

// openGated prepares the kernel.
func (b *Backend) openGated() error {
	if b.major != 9 {
		return nil
	}
	return driver.AllowShared(b.fn.gated, gatedShared)
}

// tiled reports whether src/gated.cu takes a product of gate and up: a question of its shape only, so that results are
// the same at every start. Rounds of tiles over all multiprocessors take the same time however full the last one is. In
// return the activation is free, which elsewhere is 6 bytes of memory for each element of y and its 4 * w.cols
// operations: at 3.8 TB/s and 650 TFLOP/s as much as 256 columns more (H200).
func (b *Backend) tiled(p *product) bool {
	if b.major != 9 || p.bias != nil || p.rows == 0 || p.w.rows%16 != 0 || p.w.cols%8 != 0 {
		return false
	}
	return tilingOf(p).filled(b.sms/2)*(1+256/float64(p.w.cols)) >= b.gatedShare
}

// tiling is the tiles of a product, as in src/gated.cu.
type tiling struct {
	// rows and cols are those of y.
	rows, cols int
	// whole tiles have gatedRows rows; left ones have at most half of that, and take cost of a whole one's time.
	whole, left int
	cost        float64
}

// tilingOf returns the tiles of a product.
func tilingOf(p *product) tiling {
	t := tiling{rows: p.rows, cols: p.w.rows / 2}
	across := (t.cols + gatedCols - 1) / gatedCols
	pairs, rest := p.rows/gatedRows, p.rows%gatedRows
	if rest > gatedRows/2 {
		pairs, rest = pairs+1, 0
	}
	t.whole = pairs * across
	if rest > 0 {
		t.left, t.cost = (across+1)/2, 1
	}
	if rest <= gatedRows/4 {
		t.cost /= 2
	}
	return t
}

// filled returns the share of the time of all clusters that is of use.
func (t tiling) filled(all int) float64 {
	clusters := min(all, t.whole+t.left) // those that are launched
	rounds := (t.whole + clusters - 1) / clusters
	// The last clusters have a whole tile fewer, and in its place one or two of the others beside their share.
	brief := rounds*clusters - t.whole
	each := 2
	if t.cost < 1 {
		each = 3
	}
	time := float64(rounds)
	if others := t.left - brief*each; others > 0 {
		time += t.cost * float64((others+clusters-brief-1)/(clusters-brief))
	} else if brief > 0 {
		time = max(time, time-1+t.cost*float64(min(each, t.left)))
	}
	return float64(t.rows) * float64(t.cols) / (time * float64(all) * gatedRows * gatedCols)
}

// queueGated queues a product that tiled has taken, and the activation.
func (b *Backend) queueGated(p *product) {
	if b.err != nil {
		return
	}
	const block = gatedRows / 2 // a cluster is two
	t := tilingOf(p)
	var x, w, y driver.Map
	b.fail("tensor map", x.Describe(p.x.bf16, p.rows, p.w.cols, driver.Box{Rows: block, Cols: gatedDeep, Swizzled: true}))
	b.fail("tensor map", w.Describe(p.w.data, p.w.rows, p.w.cols, driver.Box{Rows: gatedCols, Cols: gatedDeep, Swizzled: true}))
	b.fail("tensor map", y.Describe(p.y, t.rows, t.cols, driver.Box{Rows: block / 2, Cols: gatedCols}))
	b.args.Reset().Map(&x).Map(&w).Map(&y).Int(t.rows).Int(t.cols).Int(p.w.cols)
	b.reads(p.w)
	b.launch("gated", b.fn.gated, [3]int{2 * min(b.sms/2, t.whole+t.left), 1, 1}, gatedThreads, gatedShared, &b.args)
}
