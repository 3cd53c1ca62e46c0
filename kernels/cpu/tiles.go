package cpu

import "unsafe"

// tileKernels is the code of a level with a matrix unit, by kind and height of
// the panel. Heights without an entry take the vector kernels.
type tileKernels struct {
	affine, symmetric, halfBlocks [maxPanel + 1]tileKernel
}

// tileKernel adds up tiles against panels as call says.
type tileKernel func(call *tileCall)

// tileCall is what a tile kernel is asked: the sums of tiles weight tiles against
// panels panels of equal height, over blocks blocks. The assembly knows the
// offsets, and changes fields as it goes.
type tileCall struct {
	// config is the configuration of the tile registers (Intel's manual, LDTILECFG).
	config [64]byte
	// dst is the first sum; rows of sums lie stride bytes apart, those of the next
	// tile 64 bytes.
	dst    pointer
	stride int
	// panel is the first block of the first panel; the next lies panelBytes on.
	panel              pointer
	panelBytes, panels int
	// valid is how many rows of each panel are not padding.
	valid int
	// quants, scales and mins are of the first tile; those of the next lie
	// tileQuants and tileScales bytes on.
	quants, scales, mins   pointer
	tileQuants, tileScales int
	tiles                  int
	blocks                 int
	// goesOn is 1 where the sums go on from what dst holds, 0 where they begin.
	goesOn int
	// work is tileWorkBytes of memory, for the integers of two blocks.
	work pointer
	// The rest is the assembly's own.
	_ int
	_ pointer
}

const (
	// tileWorkBytes is two blocks of two halves of 16 by 16 integers.
	tileWorkBytes = 2 * 2 * 16 * 64
	// tileGroup is how many weight tiles are multiplied at a time: a panel is read
	// from the second-level cache once for all of them.
	tileGroup = 2
	// tileSection is how many blocks along K are multiplied at a time where there
	// are several panels: two tiles and a panel of so many fill the first-level
	// cache (2*11.5 and 15 of 48 KB).
	tileSection = 18
	// tileCallPanels bounds one call to some 40 µs: it cannot be preempted.
	tileCallPanels = 64
)

// configure sets the shapes for panels of height rows: register 0 and 3 hold
// sums, 1 and 4 activations, 2 and 5 weights. width is the elements along K.
func (c *tileCall) configure(height, width int) {
	c.config = [64]byte{0: 1} // palette 1: eight registers of 16 rows of 64 bytes
	for r, shape := range [...]struct{ rows, bytes int }{{height, 64}, {height, width}, {width / 4, 64}} {
		for _, register := range [...]int{r, r + 3} {
			c.config[16+2*register] = byte(shape.bytes)
			c.config[48+register] = byte(shape.rows)
		}
	}
}

// of returns the kernels for a format and the width of their blocks.
func (k *tileKernels) of(f format) (kernels *[maxPanel + 1]tileKernel, width int) {
	switch {
	case formats[f].affine:
		return &k.affine, quantElems
	case formats[f].scales == scale6K:
		return &k.halfBlocks, quantElems / 2
	}
	return &k.symmetric, quantElems
}

// group multiplies n tiles of a segment, from tile first, with all panels. lanes
// is the rows of the weight that they hold.
func (t *matmulTask) group(thread int, s *segment, first, n, lanes int) {
	b, w, scratch := t.backend, t.weight, &t.backend.scratch[thread]
	var m [tileGroup]multiplier
	for i := range n {
		m[i] = t.multiplier(scratch, i, s, s.tile(first+i))
	}
	row, stride := s.firstRow+first*tileRows, 4*w.rows
	for i := 0; i < len(t.panels); {
		p := t.panels[i]
		same := 1
		for i+same < len(t.panels) && t.panels[i+same].shape == p.shape {
			same++
		}
		kernels, width := b.kernels.tiles.of(s.format)
		whole := lanes == n*tileRows
		switch {
		case kernels[p.height] == nil:
			same = 1
			for j := range n {
				m[j].product(row+j*tileRows, min(tileRows, lanes-j*tileRows), p)
			}
		case whole:
			out := pointer(unsafe.SliceData(t.dst[p.first*w.rows+row:]))
			same = min(same, tileCallPanels)
			m[0].multiply(kernels[p.height], width, out, stride, p, same, n)
		default:
			same = 1
			for j := range n {
				at, count := row+j*tileRows, min(tileRows, lanes-j*tileRows)
				m[j].multiply(kernels[p.height], width, pointer(&scratch.sums), 4*tileRows, p, 1, 1)
				m[j].copySums(at, count, p)
			}
		}
		for _, p := range t.panels[i : i+same] {
			t.addBias(p, row, lanes)
		}
		i += same
	}
}

// multiply runs a tile kernel over panels panels from p, and tiles tiles from m's.
func (m *multiplier) multiply(kernel tileKernel, width int, dst pointer, stride int, p panel, panels, tiles int) {
	t, c := m.task, &m.scratch.call
	blocks := t.weight.cols / quantElems
	per := blocks
	if panels > 1 {
		sections := (blocks + tileSection - 1) / tileSection
		per = (blocks + sections - 1) / sections
	}
	parts := quantElems / width
	m.scratch.work.grow(tileWorkBytes)
	c.configure(p.height, width)
	for at := 0; at < blocks; at += per {
		c.dst, c.stride = dst, stride
		c.panel = t.backend.int8Acts.at((p.first*blocks + at*p.height) * panelRowBytes)
		c.panelBytes, c.panels, c.valid = p.height*blocks*panelRowBytes, panels, p.rows
		c.quants, c.tileQuants = unsafe.Add(m.tile, at*quantTile), m.tileBytes
		c.scales, c.tileScales = unsafe.Add(m.scales, at*parts*4*tileRows), 4*unpackedFloats(t.weight.cols)
		c.mins = unsafe.Add(m.mins, at*4*tileRows)
		c.tiles, c.blocks = tiles, min(per, blocks-at)
		c.goesOn = min(at, 1)
		c.work = m.scratch.work.at(0)
		kernel(c)
	}
}
