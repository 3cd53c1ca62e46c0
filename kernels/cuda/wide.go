//go:build cuda

package cuda

import (
	"gorgonia.org/cu"

	"waybill/kernels/cuda/driver"
)

// wideRows are the row counts that the kernels of src/wide.cu are made for, wideSplits those of blocks that share k.
var (
	wideRows   = [...]int{16, 32, 48, maxWideRows}
	wideSplits = [...]int{1, 2, 4}
)

const (
	// maxWideRows is the largest number of rows that src/wide.cu takes.
	maxWideRows = 64
	// wideTile is how many of w's rows a block takes, wideDeep how many elements of them at a time.
	wideTile, wideDeep = 64, 64
	// wideThreads are a block's.
	wideThreads = 160
	// wideMostStages bounds a block's ring.
	wideMostStages = 16
)

// Sizes of rings, with what blocks send each other, in bytes. They were found with the four products of a layer one
// after another, weights not in the cache (H200, Qwen3-8B's and 0.6B's shapes): two blocks to a multiprocessor, of one
// kernel or of neighbours; three of a kernel that has so many (gate and up of 8B with two larger ones cost 7 % of the
// layer at 48 rows, with smaller ones 8 % at 64); one of a kernel that has much to read for each block (8B's down with
// wideRing cost a tenth).
const (
	wideRing     = 110 << 10
	wideManyRing = 66 << 10
	wideLongRing = 150 << 10
	// wideLongSteps is how many times wideDeep elements are much to read.
	wideLongSteps = 64
)

// openWide prepares the kernels.
func (b *Backend) openWide() error {
	if b.major != 9 {
		return nil
	}
	for _, mode := range b.fn.wide {
		for _, rows := range mode {
			for _, fn := range rows {
				if err := driver.AllowShared(fn, wideLongRing); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// wideTakes reports whether src/wide.cu takes a product: a question of its shape only.
func (b *Backend) wideTakes(p *product) bool {
	return b.major == 9 && p.rows > b.wideAbove && p.rows <= b.wideMax && p.w.Bytes() <= b.wideBytes && p.w.rows%32 == 0 && p.w.cols%wideDeep == 0
}

// wideShape is how src/wide.cu is launched.
type wideShape struct {
	// rows and split are indices of wideRows and wideSplits.
	rows, split int
	// blocks are those of the grid, stages those of a block's ring, shared its bytes.
	blocks, stages, shared int
}

// wideShapeOf returns the shape for a product on sms multiprocessors.
func wideShapeOf(rows, n, k, sms int) (s wideShape) {
	for wideRows[s.rows] < rows {
		s.rows++
	}
	tiles, steps := (n+wideTile-1)/wideTile, k/wideDeep
	// Nine tenths of the multiprocessors read as fast as all.
	for s.split+1 < len(wideSplits) && tiles*wideSplits[s.split] < sms*9/10 && steps >= wideSplits[s.split+1] {
		s.split++
	}
	split := wideSplits[s.split]
	s.blocks = tiles * split
	most := wideRing
	switch {
	case s.blocks > 2*sms:
		most = wideManyRing
	case steps/split >= wideLongSteps:
		most = wideLongRing
	}
	columns := wideRows[s.rows] / 8
	parts := (split - 1) * ((columns + split - 1) / split) * 2048
	const align = 1024
	stage := (wideTile + wideRows[s.rows]) * wideDeep * 2
	s.stages = min(wideMostStages, (most-align-parts)/stage)
	s.shared = align + s.stages*stage + parts
	return s
}

// queueWide queues a product of src/wide.cu.
func (b *Backend) queueWide(mode int, p *product, y cu.DevicePtr, f follow) {
	if b.err != nil {
		return
	}
	s := wideShapeOf(p.rows, p.w.rows, p.w.cols, b.sms)
	apart := 8 // rows from a group of 8 of a tile to the next
	if mode == streamGated {
		apart = p.w.rows / 2
	}
	var w, x driver.Map
	b.fail("tensor map", w.DescribePairs(p.w.data, p.w.rows, p.w.cols, apart, driver.Box{Rows: wideTile, Cols: wideDeep}))
	b.fail("tensor map", x.Describe(p.x.bf16, p.rows, p.w.cols, driver.Box{Rows: wideRows[s.rows], Cols: wideDeep, Swizzled: true}))
	b.args.Reset().Map(&w).Map(&x).Int(s.stages).Fields()
	b.product(p, y, f)
	b.reads(p.w)
	b.launch("wide", b.fn.wide[mode][s.rows][s.split], [3]int{s.blocks, 1, 1}, wideThreads, s.shared, &b.args)
}
