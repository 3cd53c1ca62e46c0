package cpu

import (
	"unsafe"

	"waybill/kernels"
)

// MatMul sets dst [rows, w.Rows()] = x [rows, w.Cols()] · wᵀ + bias.
//
// The activations are laid out in panels first (and rounded to int8 for
// quantized weights), then every tile of the weight is multiplied with every
// panel. A thread takes a few tiles at a time and walks the panels within, so a
// weight is read from memory once however many rows there are.
func (b *Backend) MatMul(dst, x kernels.Buffer, w kernels.Weight, bias kernels.Buffer, rows int) {
	m, ok := w.(*weight)
	if !ok {
		panic(bug("weight is a %T", w))
	}
	p := product{weight: m, into: dst, dst: floats(dst, rows*m.rows, "dst"), x: floats(x, rows*m.cols, "x"), rows: rows}
	if bias != nil {
		p.bias = floats(bias, m.rows, "bias")
	}
	switch {
	case rows == 0:
		b.flush()
		return
	case b.normFeeds(x, m, rows):
		b.waiting, p.normed = nothing, true
	case b.gateFeeds(x, m, rows):
		b.runGate()
		p.ready = true
	default:
		b.flush()
	}
	if m.gated() && bias == nil && b.batch != nil {
		b.product, b.waiting = p, aProduct
		return
	}
	b.multiply(&p)
}

// multiply does a product.
func (b *Backend) multiply(p *product) {
	b.prepare(p)
	t, m := &b.matmul, p.weight
	t.tilesPerChunk = chunkSize(m.tiles, t.tileNs())
	if t.tiled {
		t.groupTiles = tileGroup
		for t.groupTiles > 1 && m.tiles/t.groupTiles < chunksPerThread*b.options.Threads {
			t.groupTiles /= 2
		}
		t.tilesPerChunk = (t.tilesPerChunk + t.groupTiles - 1) / t.groupTiles * t.groupTiles
	}
	b.pool.run(t, (m.tiles+t.tilesPerChunk-1)/t.tilesPerChunk)
}

// tileNs returns how long a tile takes with all rows, roughly.
func (t *matmulTask) tileNs() int {
	w := t.weight
	return max(int(w.bytes)/w.tiles/weightBytesPerNs, tileRows*w.cols*t.rows/productsPerNs)
}

// prepare sets the task to p and lays its activations out in panels.
func (b *Backend) prepare(p *product) {
	k, t, m, rows := b.kernels, &b.matmul, p.weight, p.rows
	t.weight, t.dst, t.x, t.bias, t.rows, t.normed = m, p.dst, p.x, p.bias, rows, p.normed
	t.panels, t.floatPanels = t.panels[:0], t.floatPanels[:0]
	t.tiled = b.tiledFor(m, rows)
	if m.quantized {
		heights, padded := k.heights, &k.padded
		if !t.tiled {
			heights, padded = k.floatHeights, &noPadding
		}
		t.panels = appendPanels(t.panels, rows, heights, padded)
	}
	if m.float {
		t.floatPanels = appendPanels(t.floatPanels, rows, k.floatHeights, &noPadding)
	}
	b.reserve(m, rows)
	if p.ready {
		return
	}

	// Half a microsecond of work is not worth a hand-over.
	n := len(t.panels) + len(t.floatPanels)
	ns := m.cols * rows / n / activationsPerNs
	if p.normed {
		ns *= 2
	}
	t.panelsPerChunk = chunkSize(n, ns)
	b.pool.run(&b.activate, (n+t.panelsPerChunk-1)/t.panelsPerChunk)
}

// noPadding leaves every panel as it is.
var noPadding [maxPanel + 1]int

// minTiledRows is the fewest rows for the matrix unit. With fewer, the vector
// kernels that unpack on the way are as fast or faster.
const minTiledRows = 17

// Work is cut into chunks of some chunkNs: long against the 0.1 µs that a claim
// costs, short against a decode step's products (20 to 200 µs), whose last
// chunks are what threads wait for. The rates are rough figures of the AVX-512
// kernels on one core of a Sapphire Rapids server; they only steer the cut.
const (
	chunkNs          = 5000
	activationsPerNs = 2
	weightBytesPerNs = 12
	productsPerNs    = 80
)

// chunkSize returns how many of n equal items of ns nanoseconds make a chunk.
func chunkSize(n, ns int) int {
	return min(n, max(1, chunkNs/max(ns, 1), (n+maxChunks-1)/maxChunks))
}

// reserve makes room for the activations of rows rows and for the unpacked tiles
// of each thread.
func (b *Backend) reserve(w *weight, rows int) {
	if w.quantized {
		b.int8Acts.grow((rows + maxPanel) * w.cols / quantElems * panelRowBytes)
		for i := range b.scratch {
			b.scratch[i].tile.grow(max(groupBytes(w.cols, tileGroup), w.cols*tileRows+4*unpackedFloats(w.cols)))
		}
	}
	if w.float {
		b.floatActs.grow(rows * w.cols * 4)
	}
}

// matmulTask multiplies tiles with all panels; activateTask makes the panels.
type matmulTask struct {
	backend      *Backend
	weight       *weight
	dst, x, bias []float32
	rows         int
	// normed says that x is yet to be made by the norm that waited.
	normed bool
	// panels are of quantized, floatPanels of float activations.
	panels, floatPanels []panel
	tilesPerChunk       int
	// tiled says that the matrix unit does the quantized tiles, groupTiles at once.
	tiled      bool
	groupTiles int
	// panelsPerChunk belongs to activateTask.
	panelsPerChunk int
}

// activateTask is the first half of a matmulTask.
type activateTask struct{ *matmulTask }

// run lays out the panels of a chunk.
func (t *activateTask) run(_, chunk int) {
	b, w := t.backend, t.weight
	first := chunk * t.panelsPerChunk
	for i := first; i < min(first+t.panelsPerChunk, len(t.panels)+len(t.floatPanels)); i++ {
		if i < len(t.panels) {
			t.quantize(t.panels[i])
			continue
		}
		p := t.floatPanels[i-len(t.panels)]
		to := unsafe.Slice((*float32)(b.floatActs.at(4*p.first*w.cols)), p.height*w.cols)
		packFloatPanel(to, t.x[p.first*w.cols:][:p.rows*w.cols], w.cols, p.height, w.cols)
	}
}

// quantize rounds the rows of one panel. Padding is zeros: its sums are made and
// dropped, and must not be slow or fault.
func (t *matmulTask) quantize(p panel) {
	b, cols := t.backend, t.weight.cols
	blocks := cols / quantElems
	if t.normed {
		for r := p.first; r < p.first+p.rows; r++ {
			b.norm.row(r)
		}
	}
	to := t.acts(p)
	if p.rows < p.height {
		clear(unsafe.Slice((*byte)(to), p.height*blocks*panelRowBytes))
	}
	b.kernels.quantize(to, t.x[p.first*cols:][:p.rows*cols], cols, p.shape, blocks)
}

// acts returns where the rounded rows of a panel are.
func (t *matmulTask) acts(p panel) pointer {
	return t.backend.int8Acts.at(p.first * t.weight.cols / quantElems * panelRowBytes)
}

// run multiplies the tiles of a chunk.
func (t *matmulTask) run(thread, chunk int) {
	end := min((chunk+1)*t.tilesPerChunk, t.weight.tiles)
	for i := chunk * t.tilesPerChunk; i < end; {
		s := t.weight.segmentOf(i)
		first := i - s.firstTile
		whole := min(end-s.firstTile, s.rows/tileRows) - first
		if whole > 0 && t.fusable(s.format) {
			t.fused(s, first, whole)
			i += whole
			continue
		}
		lane := first * tileRows
		if s.format.quantized() && t.tiled {
			n := min(t.groupTiles, end-i, tilesOf(s.rows-lane))
			t.group(thread, s, first, n, min(n*tileRows, s.rows-lane))
			i += n
			continue
		}
		t.tile(thread, s, s.tile(first), s.firstRow+lane, min(tileRows, s.rows-lane))
		i++
	}
}

// fusable reports whether there is a fused kernel for every panel and
// they are few enough.
func (t *matmulTask) fusable(f format) bool {
	if !f.quantized() || t.tiled || len(t.panels) > t.backend.kernels.fusedPanels {
		return false
	}
	for _, p := range t.panels {
		if t.backend.kernels.fused[f][p.height] == nil {
			return false
		}
	}
	return true
}

// fused multiplies n whole tiles of a segment.
func (t *matmulTask) fused(s *segment, first, n int) {
	b, w := t.backend, t.weight
	row, blocks := s.firstRow+first*tileRows, w.cols/quantElems
	for _, p := range t.panels {
		out := t.dst[p.first*w.rows+row:]
		b.kernels.fused[s.format][p.height](pointer(unsafe.SliceData(out)), 4*w.rows,
			pointer(unsafe.SliceData(s.tile(first))), s.tileBytes, n,
			t.acts(p), blocks)
		t.addBias(p, row, n*tileRows)
	}
}

// addBias adds the bias of n rows of the weight to a panel's results.
func (t *matmulTask) addBias(p panel, row, n int) {
	if t.bias == nil {
		return
	}
	for m := range p.rows {
		out := t.dst[(p.first+m)*t.weight.rows+row:][:n]
		for i, v := range t.bias[row : row+n] {
			out[i] += v
		}
	}
}

// tile multiplies one tile, whose first n lanes are rows from row of the weight,
// with all panels.
func (t *matmulTask) tile(thread int, s *segment, tile []byte, row, n int) {
	mul := t.multiplier(&t.backend.scratch[thread], s, tile)
	panels := t.panels
	if !s.format.quantized() {
		panels = t.floatPanels
	}
	for _, p := range panels {
		mul.product(row, n, p)
		t.addBias(p, row, n)
	}
}

// product sets the results of a panel for n rows of the weight from row.
func (m *multiplier) product(row, n int, p panel) {
	w := m.task.weight
	if n == tileRows {
		out := m.task.dst[p.first*w.rows+row:]
		m.panel(pointer(unsafe.SliceData(out)), 4*w.rows, p)
		return
	}
	m.panel(pointer(&m.scratch.sums), 4*tileRows, p)
	m.task.copySums(m.scratch, row, n, p)
}

// copySums copies the first n sums of every row of a panel to the results.
func (t *matmulTask) copySums(scratch *scratch, row, n int, p panel) {
	for r := range p.rows {
		copy(t.dst[(p.first+r)*t.weight.rows+row:][:n], scratch.sums[r*tileRows:])
	}
}

// multiplier holds what the kernels need of one tile.
type multiplier struct {
	task    *matmulTask
	scratch *scratch
	segment *segment
	tile    pointer
	// scales and mins are those of the unpacked tile.
	scales, mins pointer
}

// multiplier unpacks a tile into the thread's scratch memory where it needs
// that.
func (t *matmulTask) multiplier(scratch *scratch, s *segment, tile []byte) multiplier {
	m := multiplier{task: t, scratch: scratch, segment: s, tile: pointer(unsafe.SliceData(tile))}
	f := s.format
	if !f.quantized() {
		return m
	}
	k, cols := t.backend.kernels, t.weight.cols
	blocks := cols / quantElems
	all := unsafe.Slice((*float32)(scratch.tile.at(cols*tileRows)), unpackedFloats(cols))
	u := unpacked{scales: all[:2*blocks*tileRows], mins: all[2*blocks*tileRows:]}
	f.unpackScales(k, &u, tile[blocks*f.quantBytes():], blocks, 0, blocks)
	m.scales, m.mins = pointer(unsafe.SliceData(u.scales)), pointer(unsafe.SliceData(u.mins))
	if unpack := k.unpackQuants[f]; unpack != nil {
		to := scratch.tile.at(0)
		unpack(to, m.tile, blocks)
		m.tile = to
	}
	return m
}

// panel multiplies the tile with a panel.
func (m *multiplier) panel(dst pointer, stride int, p panel) {
	b, cols, f := m.task.backend, m.task.weight.cols, m.segment.format
	if !f.quantized() {
		b.kernels.float[f][p.height](dst, stride, m.tile, b.floatActs.at(4*p.first*cols), cols)
		return
	}
	blocks := cols / quantElems
	kernel := b.kernels.symmetric[p.height]
	switch {
	case formats[f].affine:
		kernel = b.kernels.affine[p.height]
	case formats[f].scales == scale6K:
		kernel = b.kernels.halfBlocks[p.height]
	}
	kernel(dst, stride, m.tile, m.scales, m.mins, m.task.acts(p), blocks)
}
