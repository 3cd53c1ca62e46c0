package cpu

import (
	"fmt"

	"waybill/kernels"
)

// weight is a packed weight: tiles of 16 rows, one run of them for each part.
type weight struct {
	rows, cols int
	bytes      int64
	segments   []segment
	// tiles is the number of tiles of all segments.
	tiles int
	// quantized and float tell which kinds of activations a product needs.
	quantized, float bool
	// halves says that a part has two scales to a block.
	halves bool
}

// segment is the tiles of one part.
type segment struct {
	format format
	// firstRow and rows place the part in the weight.
	firstRow, rows int
	// firstTile is the number of tiles before it.
	firstTile int
	tileBytes int
	data      []byte
}

// Rows returns the output features.
func (w *weight) Rows() int { return w.rows }

// Cols returns the input features.
func (w *weight) Cols() int { return w.cols }

// Bytes returns the memory held, in bytes.
func (w *weight) Bytes() int64 { return w.bytes }

// tilesOf returns the number of tiles that rows rows fill.
func tilesOf(rows int) int { return (rows + tileRows - 1) / tileRows }

// newWeight packs parts under m into memory of from.
func newWeight(parts []kernels.HostTensor, m Math, from *weightMemory) (*weight, error) {
	rows, cols, err := checkParts(parts)
	if err != nil {
		return nil, err
	}
	w := &weight{rows: rows, cols: cols}
	row := 0
	for i := range parts {
		f := formatOf(parts[i].DType, m)
		s := segment{format: f, firstRow: row, rows: parts[i].PackedRows(), firstTile: w.tiles, tileBytes: f.tileBytes(cols)}
		row += s.rows
		w.tiles += tilesOf(s.rows)
		w.bytes += int64(tilesOf(s.rows)) * int64(s.tileBytes)
		w.quantized = w.quantized || f.quantized()
		w.float = w.float || !f.quantized()
		w.halves = w.halves || formats[f].scales == scale6K
		w.segments = append(w.segments, s)
	}
	free, err := from.take(w.bytes)
	if err != nil {
		return nil, fmt.Errorf("cpu: pack: tensor %q, [%d, %d]: %w", parts[0].Name, rows, cols, err)
	}
	for i := range w.segments {
		s := &w.segments[i]
		n := tilesOf(s.rows) * s.tileBytes
		s.data, free = free[:n:n], free[n:]
		t := &parts[i]
		for r := range s.rows {
			s.format.packRow(s.tile(r/tileRows), r%tileRows, t.DType, cols, t.SourceRow(r))
		}
	}
	return w, nil
}

// tile returns the bytes of tile i of the segment.
func (s *segment) tile(i int) []byte { return s.data[i*s.tileBytes : (i+1)*s.tileBytes] }

// segmentOf returns the segment that holds tile i of the weight.
func (w *weight) segmentOf(tile int) *segment {
	i := len(w.segments) - 1
	for w.segments[i].firstTile > tile {
		i--
	}
	return &w.segments[i]
}

// row sets dst [cols] to row r.
func (w *weight) row(dst []float32, r int) {
	i := len(w.segments) - 1
	for w.segments[i].firstRow > r {
		i--
	}
	s := &w.segments[i]
	r -= s.firstRow
	s.format.unpackRow(dst, s.tile(r/tileRows), r%tileRows)
}
