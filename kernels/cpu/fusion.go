package cpu

import (
	"unsafe"

	"waybill/kernels"
)

// Some ops wait for the one that follows and are done with it (doc.go).

// waits says what waits: the norm in Backend.norm, the product in
// Backend.product, or that product and the SiLUMul in Backend.silu.
type waits uint8

const (
	nothing waits = iota
	aNorm
	aProduct
	aGate
)

// product is what MatMul was asked for.
type product struct {
	weight       *weight
	into         kernels.Buffer // dst is its elements
	dst, x, bias []float32
	rows         int
	// normed says that x is what the waiting norm makes, ready that the
	// activations are rounded already.
	normed, ready bool
}

// flush does what waits by itself.
func (b *Backend) flush() {
	what := b.waiting
	b.waiting = nothing
	switch what {
	case aNorm:
		b.norm.all()
	case aProduct:
		b.multiply(&b.product)
	case aGate:
		b.multiply(&b.product)
		b.silu.all()
	}
}

// rounds reports whether a product with w takes its activations as int8 only.
func (w *weight) rounds() bool { return w.quantized && !w.float }

// gated reports whether w is two matrices of one format, one above the other,
// whose blocks of 32 rows are pairs of whole tiles: gate and up.
func (w *weight) gated() bool {
	if !w.rounds() || w.rows%(2*quantElems) != 0 || len(w.segments) > 2 {
		return false
	}
	return len(w.segments) == 1 ||
		w.segments[0].format == w.segments[1].format && w.segments[0].rows == w.segments[1].rows
}

// tiledFor reports whether the matrix unit does rows rows of w.
func (b *Backend) tiledFor(w *weight, rows int) bool {
	return b.kernels.tiles != nil && rows >= minTiledRows && !w.halves && w.quantized
}

// normFeeds reports whether a norm waits that makes the activations x of a
// product with w.
func (b *Backend) normFeeds(x kernels.Buffer, w *weight, rows int) bool {
	n := &b.norm
	return b.waiting == aNorm && n.into == x && n.rows == rows && len(n.weight) == w.cols && w.rounds()
}

// gateFeeds reports whether a SiLUMul waits that makes the activations x of a
// product with w, in panels of the heights that its own product has.
func (b *Backend) gateFeeds(x kernels.Buffer, w *weight, rows int) bool {
	s := &b.silu
	return b.waiting == aGate && s.into == x && s.rows == rows && s.inner == w.cols && w.rounds() &&
		b.tiledFor(w, rows) == b.tiledFor(b.product.weight, rows)
}

// gatePanels is how many panels of the matrix unit are done at a time: their
// results, 256 bytes a row, stay in the first-level cache until they are rounded.
const gatePanels = 4

// gateTask multiplies with gate and up and rounds silu(gate)*up, which is never
// written: pairs of tiles make a block of 32, which goes to its place in the panels of
// the product that follows.
type gateTask struct {
	*matmulTask
	inner int
	each  int // blocks of a chunk
}

// runGate does the waiting product and SiLUMul. The panels are in int8Acts then.
func (b *Backend) runGate() {
	b.waiting = nothing
	p, t := &b.product, &b.gate
	b.prepare(p)
	t.inner = b.silu.inner
	units := t.inner / quantElems
	t.each = 1
	rows := gatePanels * maxPanel
	if !t.tiled {
		t.each = chunkSize(units, 4*t.tileNs())
		rows = p.rows + maxPanel
	}
	for i := range b.scratch {
		b.scratch[i].gate.grow(rows * t.each * gateRowBytes)
	}
	b.gateActs.grow((p.rows + maxPanel) * units * panelRowBytes)
	if last := t.panels[len(t.panels)-1]; last.rows < last.height {
		clear(unsafe.Slice((*byte)(b.gateActs.at(last.first*units*panelRowBytes)), last.height*units*panelRowBytes))
	}
	b.pool.run(t, (units+t.each-1)/t.each)
	b.int8Acts, b.gateActs = b.gateActs, b.int8Acts
}

// gateRowBytes is the bytes of a row of gates and ups for one block.
const gateRowBytes = 2 * 4 * quantElems

// run does the blocks of a chunk.
func (t *gateTask) run(thread, chunk int) {
	first := chunk * t.each
	n := min(t.each, t.inner/quantElems-first)
	scratch := &t.backend.scratch[thread]
	stride, half := n*gateRowBytes, n*gateRowBytes/2
	tiles := 2 * n
	sides := [2]tileRange{t.weight.tilesFrom(2*first, tiles), t.weight.tilesFrom(t.inner/tileRows+2*first, tiles)}
	f := sides[0].segment.format
	switch {
	case t.tiled:
		u := t.unpackTiles(scratch, sides[:])
		for i := 0; i < len(t.panels); {
			p, same := t.panels[i], 1
			for same < gatePanels && i+same < len(t.panels) && t.panels[i+same].shape == p.shape {
				same++
			}
			t.matmulTask.multiply(scratch, f, u, 2*tiles, p, same, scratch.gate.at(0), stride)
			for j := range same {
				t.finish(t.panels[i+j], scratch.gate.at(j*p.height*stride), first, n)
			}
			i += same
		}
		return
	case t.fusable(f):
		for _, p := range t.panels {
			for i, side := range sides {
				t.backend.kernels.fused[f][p.height](scratch.gate.at(p.first*stride+i*half), stride,
					side.at(0), side.segment.tileBytes, tiles, t.acts(p), t.weight.cols/quantElems)
			}
		}
	default:
		for i, side := range sides {
			for j := range tiles {
				m := t.multiplier(scratch, side.segment, side.segment.tile(side.first+j))
				for _, p := range t.panels {
					m.panel(scratch.gate.at(p.first*stride+i*half+4*tileRows*j), stride, p)
				}
			}
		}
	}
	for _, p := range t.panels {
		t.finish(p, scratch.gate.at(p.first*stride), first, n)
	}
}

// finish rounds n blocks of silu(gate)*up of a panel, from block first on. x is
// the panel's gates and ups.
func (t *gateTask) finish(p panel, x pointer, first, n int) {
	k, cols := t.backend.kernels, n*quantElems
	k.gate(x, p.rows, cols)
	to := t.backend.gateActs.at((p.first*t.inner/quantElems + first*p.height) * panelRowBytes)
	k.quantize(to, unsafe.Slice((*float32)(x), 2*p.rows*cols), 2*cols, p.shape, n)
}

// gateRows makes a kernelSet's gate of its silu.
func gateRows(silu func(dst, gate, up []float32)) func(x pointer, rows, n int) {
	return func(x pointer, rows, n int) {
		all := unsafe.Slice((*float32)(x), 2*rows*n)
		for r := range rows {
			row := all[2*r*n:][:2*n]
			silu(row[:n], row[:n], row[n:])
		}
	}
}

// tileRange is n tiles of a segment, from tile first of it.
type tileRange struct {
	segment  *segment
	first, n int
}

// at returns the address of tile i of the range.
func (r tileRange) at(i int) pointer { return pointer(unsafe.SliceData(r.segment.tile(r.first + i))) }

// tilesFrom returns n tiles from tile i of the weight; they lie in one segment.
func (w *weight) tilesFrom(i, n int) tileRange {
	s := w.segmentOf(i)
	return tileRange{s, i - s.firstTile, n}
}
