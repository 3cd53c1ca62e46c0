package cpu

import "unsafe"

// tileKernels is the code of a level with a matrix unit, by kind and height of
// the panel. Weights with two scales to a block keep the vector kernels: twice as
// many integers would have to leave the tiles (Q6_K, 512 rows: 380 against 580
// GOP/s).
type tileKernels struct {
	affine, symmetric [maxPanel + 1]tileKernel
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
	// panel is the first panel; the next lies panelBytes on.
	panel              pointer
	panelBytes, panels int
	// valid is how many rows of each panel are not padding.
	valid int
	unpackedTiles
	tiles int
	// blocks is the blocks along K; they are done in sections of section.
	blocks, section int
	// work is workBytes of memory, for the integers of a section.
	work pointer
	// The rest is the assembly's own.
	_ [7]int
}

// unpackedTiles is where tiles lie for a tile kernel: the first one's quants,
// scales and minimums. Those of the next lie tileQuants and tileScales bytes on.
// Scales and minimums lie one section of K to a page.
type unpackedTiles struct {
	quants, scales, mins   pointer
	tileQuants, tileScales int
}

const (
	pageBytes = 4096
	// wholeSection is the most blocks that are one section: 576 columns. More are
	// cut into sections of sectionBlocks, a multiple of a super block. A tile, a
	// panel and the integers of a section fill the first-level cache (11.5, 15 and
	// 18 of 48 KB).
	wholeSection  = 18
	sectionBlocks = 16
	// minsOffset is where in a section's page the minimums lie.
	minsOffset = wholeSection * 4 * tileRows
	// workBytes is a section of 16 by 16 integers.
	workBytes = wholeSection * 16 * 64
	// tileGroup is how many weight tiles are multiplied at a time: a panel is read
	// from the second-level cache once for all of them. Fewer are, where a thread
	// would get less than chunksPerThread chunks: the last one is waited for. (512
	// rows of SmolLM2, medians of four runs: 1457, 1378, 1536 tok/s with 1, 2, 4.)
	tileGroup       = 4
	chunksPerThread = 8
	// callBlocks bounds the blocks of a call (tiles times panels) to some 40 us,
	// since it cannot be preempted.
	callBlocks = 2700
)

// sectionOf returns how many blocks make a section.
func sectionOf(blocks int) int {
	if blocks <= wholeSection {
		return blocks
	}
	return sectionBlocks
}

// tileScaleBytes returns the memory for the scales and minimums of one tile.
func tileScaleBytes(blocks int) int {
	n := sectionOf(blocks)
	return (blocks + n - 1) / n * pageBytes
}

// groupBytes returns the scratch memory for a group of n tiles.
func groupBytes(cols, n int) int {
	return n * (cols*tileRows + tileScaleBytes(cols/quantElems))
}

// configure sets the shapes for panels of height rows: register 0 holds sums, 1
// activations, 2 weights.
func (c *tileCall) configure(height int) {
	c.config = [64]byte{0: 1} // palette 1: eight registers of 16 rows of 64 bytes
	for r, shape := range [...]struct{ rows, bytes int }{{height, 64}, {height, quantElems}, {quantElems / 4, 64}} {
		c.config[16+2*r], c.config[48+r] = byte(shape.bytes), byte(shape.rows)
	}
}

// group multiplies n tiles of a segment, from tile first, with all panels. lanes
// is the rows of the weight that they hold.
func (t *matmulTask) group(thread int, s *segment, first, n, lanes int) {
	w, scratch := t.weight, &t.backend.scratch[thread]
	tiles := t.unpackTiles(scratch, []tileRange{{s, first, n}})
	row := s.firstRow + first*tileRows
	most := max(1, callBlocks/(n*w.cols/quantElems))
	for i := 0; i < len(t.panels); {
		p, same := t.panels[i], 1
		for same < most && i+same < len(t.panels) && t.panels[i+same].shape == p.shape {
			same++
		}
		whole := lanes / tileRows
		if whole > 0 {
			out := t.dst[p.first*w.rows+row:]
			t.multiply(scratch, s.format, tiles, whole, p, same, pointer(unsafe.SliceData(out)), 4*w.rows)
		}
		if rest := lanes % tileRows; rest > 0 {
			last := tiles.from(whole)
			for _, p := range t.panels[i : i+same] {
				t.multiply(scratch, s.format, last, 1, p, 1, pointer(&scratch.sums), 4*tileRows)
				t.copySums(scratch, row+whole*tileRows, rest, p)
			}
		}
		for _, p := range t.panels[i : i+same] {
			t.addBias(p, row, lanes)
		}
		i += same
	}
}

// from returns the tiles from number i on.
func (u unpackedTiles) from(i int) unpackedTiles {
	u.quants = unsafe.Add(u.quants, i*u.tileQuants)
	u.scales, u.mins = unsafe.Add(u.scales, i*u.tileScales), unsafe.Add(u.mins, i*u.tileScales)
	return u
}

// unpackTiles unpacks tiles of one format into the thread's scratch memory, one
// after another.
func (t *matmulTask) unpackTiles(scratch *scratch, ranges []tileRange) unpackedTiles {
	k, f, cols := t.backend.kernels, ranges[0].segment.format, t.weight.cols
	blocks := cols / quantElems
	section := sectionOf(blocks)
	u := unpackedTiles{
		quants: ranges[0].at(0), tileQuants: ranges[0].segment.tileBytes,
		scales: scratch.tile.at(0), mins: scratch.tile.at(minsOffset), tileScales: tileScaleBytes(blocks),
	}
	unpack := k.unpackQuants[f]
	if len(ranges) > 1 || unpack != nil {
		n := 0
		for _, r := range ranges {
			n += r.n
		}
		u.quants, u.tileQuants = scratch.tile.at(n*u.tileScales), cols*tileRows
	}
	n := 0
	for _, r := range ranges {
		for i := range r.n {
			tile := r.segment.tile(r.first + i)
			for at := 0; at < blocks; at += section {
				page := scratch.tile.at(n*u.tileScales + at/section*pageBytes)
				to := unpacked{
					scales: unsafe.Slice((*float32)(page), pageBytes/4),
					mins:   unsafe.Slice((*float32)(unsafe.Add(page, minsOffset)), minsOffset/4),
				}
				f.unpackScales(k, &to, tile[blocks*f.quantBytes():], blocks, at, min(section, blocks-at))
			}
			quants := unsafe.Add(u.quants, n*u.tileQuants)
			if unpack != nil {
				unpack(quants, pointer(unsafe.SliceData(tile)), blocks)
			} else if len(ranges) > 1 {
				copy(unsafe.Slice((*byte)(quants), cols*tileRows), tile)
			}
			n++
		}
	}
	return u
}

// multiply sets the sums of tiles tiles against panels panels from p.
func (t *matmulTask) multiply(scratch *scratch, f format, u unpackedTiles, tiles int, p panel, panels int, dst pointer, stride int) {
	b, c := t.backend, &scratch.call
	blocks := t.weight.cols / quantElems
	kernel := &b.kernels.tiles.symmetric
	if formats[f].affine {
		kernel = &b.kernels.tiles.affine
	}
	scratch.work.grow(workBytes)
	c.configure(p.height)
	c.unpackedTiles, c.tiles = u, tiles
	c.dst, c.stride = dst, stride
	c.panel = t.acts(p)
	c.panelBytes, c.panels, c.valid = p.height*blocks*panelRowBytes, panels, p.rows
	c.blocks, c.section = blocks, sectionOf(blocks)
	c.work = scratch.work.at(0)
	kernel[p.height](c)
}
