// Package gguf reads GGUF model files, versions 2 and 3, little endian. Every
// count, length, dimension and offset is checked against the file's size before
// anything is allocated: a hostile file gets an error, never a panic, a hang or
// more memory than a small multiple of its size.
//
// Source: the GGUF specification in ggml's docs/gguf.md.
package gguf

import (
	"fmt"
	"math"
	"sort"
	"strings"

	"waybill/kernels"
	"waybill/model/mmap"
)

// Limits of the format and of this reader.
const (
	// maxDims is GGML_MAX_DIMS.
	maxDims = 4
	// maxNameBytes bounds a tensor's name. GGML_MAX_NAME is 64; some writers
	// exceed it and later readers were built with more room.
	maxNameBytes = 256
	// maxKeyBytes bounds a metadata key (the specification's 2^16 - 1).
	maxKeyBytes = 1<<16 - 1
	// maxNesting bounds arrays of arrays. No known key nests at all.
	maxNesting = 4
	// maxKeys and maxTensors bound what is kept for each of them, some 150 bytes: a
	// large file that claims as many as it has room for would take ten times its
	// size before the first one is read. Files have some 50 keys; the most tensors
	// are in mixtures of experts that are stored one by one, some 60,000.
	maxKeys    = 1 << 16
	maxTensors = 1 << 17
	// defaultAlignment holds where general.alignment is absent.
	defaultAlignment = 32
	// maxAlignment is far above any writer's choice (32 or 64, rarely a page).
	maxAlignment = 1 << 20
	// minKeyValueBytes and minTensorBytes are the smallest encodings of a
	// metadata entry (empty key, one-byte value) and of a tensor's entry (empty
	// name, one dimension): they turn a count into a size that can be checked.
	minKeyValueBytes = 8 + 4 + 1
	minTensorBytes   = 8 + 4 + 8 + 4 + 8
)

// Tensor is one tensor of a file. Data points into the mapping and dies with it.
type Tensor struct {
	// Name is the name in the file, such as "blk.0.attn_q.weight".
	Name string
	// DType is the element type.
	DType kernels.DType
	// Shape is row-major: the file's dimensions in reverse, [rows, cols].
	Shape []int
	// Data holds the elements, rows one after another.
	Data []byte
}

// File is a parsed file.
type File struct {
	// Version is 2 or 3.
	Version uint32
	// Metadata holds the keys and values. Values live on the Go heap.
	Metadata Metadata

	name    string
	tensors []Tensor
	byName  map[string]int
	mapping *mmap.File
}

// Open maps and parses the file at path.
func Open(path string) (*File, error) {
	m, err := mmap.Open(path)
	if err != nil {
		return nil, fmt.Errorf("gguf: %w", err)
	}
	f, err := Parse(path, m.Bytes())
	if err != nil {
		m.Close()
		return nil, err
	}
	f.mapping = m
	return f, nil
}

// Close unmaps the file: the tensors' Data is gone, the metadata stays.
func (f *File) Close() error {
	for i := range f.tensors {
		f.tensors[i].Data = nil
	}
	if f.mapping == nil {
		return nil
	}
	return f.mapping.Close()
}

// Path returns the name that the file was opened or parsed under.
func (f *File) Path() string { return f.name }

// Tensors returns all tensors in file order.
func (f *File) Tensors() []Tensor { return f.tensors }

// Tensor returns the tensor called name.
func (f *File) Tensor(name string) (Tensor, bool) {
	i, ok := f.byName[name]
	if !ok {
		return Tensor{}, false
	}
	return f.tensors[i], true
}

// Parse reads a whole file from data. name is for error texts. The tensors' Data
// are slices of data; nothing else of the result refers to it.
func Parse(name string, data []byte) (*File, error) {
	f, err := parse(name, data)
	if err != nil {
		return nil, fmt.Errorf("gguf: %s: %w", name, err)
	}
	return f, nil
}

func parse(name string, data []byte) (*File, error) {
	c := &cursor{data: data}
	f := &File{name: name}
	numTensors, numKV, err := f.parseHead(c)
	if err != nil {
		return nil, err
	}
	if f.Metadata, err = parseMetadata(c, numKV); err != nil {
		return nil, err
	}
	alignment, err := alignment(f.Metadata)
	if err != nil {
		return nil, err
	}
	offsets, err := f.parseTensorInfos(c, numTensors)
	if err != nil {
		return nil, err
	}
	start := (c.off + alignment - 1) / alignment * alignment
	if len(f.tensors) > 0 && start > len(data) {
		return nil, fmt.Errorf("tensor data starts at byte %d, file has %d bytes", start, len(data))
	}
	return f, f.locate(data, start, alignment, offsets)
}

// parseHead reads magic, version and the two counts.
func (f *File) parseHead(c *cursor) (numTensors, numKV int, err error) {
	magic, err := c.bytes(4)
	if err != nil {
		return 0, 0, err
	}
	if string(magic) != "GGUF" {
		return 0, 0, fmt.Errorf("not a GGUF file: starts with %q, expected %q", magic, "GGUF")
	}
	if f.Version, err = c.uint32(); err != nil {
		return 0, 0, err
	}
	switch {
	case f.Version == 2 || f.Version == 3:
	case f.Version != 0 && f.Version&0xffff == 0:
		return 0, 0, fmt.Errorf("big-endian file, expected little endian")
	default:
		return 0, 0, fmt.Errorf("version %d, expected 2 or 3", f.Version)
	}
	if numTensors, err = c.count("tensor count", minTensorBytes, maxTensors); err != nil {
		return 0, 0, err
	}
	if numKV, err = c.count("metadata count", minKeyValueBytes, maxKeys); err != nil {
		return 0, 0, err
	}
	return numTensors, numKV, nil
}

func alignment(m Metadata) (int, error) {
	v, ok := m["general.alignment"]
	if !ok {
		return defaultAlignment, nil
	}
	n, err := v.Int()
	if err != nil {
		return 0, fmt.Errorf("general.alignment: %w", err)
	}
	if n < 8 || n > maxAlignment || n&(n-1) != 0 {
		return 0, fmt.Errorf("general.alignment is %d, expected a power of two from 8 to %d", n, maxAlignment)
	}
	return n, nil
}

// parseTensorInfos reads names, shapes and types, and returns each tensor's
// offset within the data section.
func (f *File) parseTensorInfos(c *cursor, n int) ([]uint64, error) {
	f.tensors = make([]Tensor, n)
	f.byName = make(map[string]int, n)
	offsets := make([]uint64, n)
	for i := range f.tensors {
		t := &f.tensors[i]
		var err error
		if t.Name, err = c.string(maxNameBytes); err != nil {
			return nil, fmt.Errorf("tensor %d: name: %w", i, err)
		}
		if _, ok := f.byName[t.Name]; ok {
			return nil, fmt.Errorf("tensor %q occurs twice", t.Name)
		}
		f.byName[t.Name] = i
		if t.Shape, err = parseShape(c); err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		code, err := c.uint32()
		if err != nil {
			return nil, fmt.Errorf("tensor %q: type: %w", t.Name, err)
		}
		if t.DType, err = dtype(code); err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if offsets[i], err = c.uint64(); err != nil {
			return nil, fmt.Errorf("tensor %q: offset: %w", t.Name, err)
		}
	}
	return offsets, nil
}

func parseShape(c *cursor) ([]int, error) {
	n, err := c.uint32()
	if err != nil {
		return nil, err
	}
	if n < 1 || n > maxDims {
		return nil, fmt.Errorf("%d dimensions, expected 1 to %d", n, maxDims)
	}
	shape := make([]int, n)
	for i := range shape {
		d, err := c.uint64()
		if err != nil {
			return nil, err
		}
		// An element takes at least half a byte in every supported type, so a
		// larger dimension cannot be backed by the file.
		if d < 1 || d > 2*uint64(len(c.data)) {
			return nil, fmt.Errorf("dimension %d is %d, expected 1 to twice the file's %d bytes", i, d, len(c.data))
		}
		shape[len(shape)-1-i] = int(d)
	}
	return shape, nil
}

// locate cuts each tensor's bytes out of data and refuses overlaps: with them a
// small file could name the same bytes any number of times, and packing would
// multiply its size.
func (f *File) locate(data []byte, start, alignment int, offsets []uint64) error {
	order := make([]int, len(f.tensors))
	for i := range f.tensors {
		order[i] = i
		t := &f.tensors[i]
		size, err := dataBytes(t.DType, t.Shape)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		room := uint64(len(data) - start)
		if offsets[i] > room || size > room-offsets[i] {
			return fmt.Errorf("tensor %q: %d bytes at offset %d, but the data section has %d bytes",
				t.Name, size, offsets[i], room)
		}
		if offsets[i]%uint64(alignment) != 0 {
			return fmt.Errorf("tensor %q: offset %d is not a multiple of the alignment %d", t.Name, offsets[i], alignment)
		}
		from := start + int(offsets[i])
		t.Data = data[from : from+int(size) : from+int(size)]
	}
	sort.Slice(order, func(a, b int) bool { return offsets[order[a]] < offsets[order[b]] })
	for k := 1; k < len(order); k++ {
		a, b := order[k-1], order[k]
		if offsets[a]+uint64(len(f.tensors[a].Data)) > offsets[b] {
			return fmt.Errorf("tensors %q and %q overlap", f.tensors[a].Name, f.tensors[b].Name)
		}
	}
	return nil
}

// dataBytes returns the size of a tensor's data, with no overflow: each
// dimension is at most twice the file's size, which fits 62 bits.
func dataBytes(d kernels.DType, shape []int) (uint64, error) {
	cols := shape[len(shape)-1]
	if cols%d.BlockElems() != 0 {
		return 0, fmt.Errorf("row of %d elements, expected a multiple of %s's block of %d", cols, d, d.BlockElems())
	}
	size := uint64(cols/d.BlockElems()) * uint64(d.BlockBytes())
	for _, rows := range shape[:len(shape)-1] {
		if size > math.MaxInt64/uint64(rows) {
			return 0, fmt.Errorf("shape %v is too large", shape)
		}
		size *= uint64(rows)
	}
	return size, nil
}

// ggmlTypes maps GGML's type numbers (ggml.h, enum ggml_type) to ours.
var ggmlTypes = map[uint32]kernels.DType{
	0: kernels.F32, 1: kernels.F16, 30: kernels.BF16,
	2: kernels.Q4_0, 3: kernels.Q4_1, 6: kernels.Q5_0, 7: kernels.Q5_1, 8: kernels.Q8_0,
	12: kernels.Q4_K, 13: kernels.Q5_K, 14: kernels.Q6_K,
}

// otherTypes names the types that files in the wild have and we do not, so that
// the error says more than a number.
var otherTypes = map[uint32]string{
	9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS",
	19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16",
	26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}

func dtype(code uint32) (kernels.DType, error) {
	if d, ok := ggmlTypes[code]; ok {
		return d, nil
	}
	name, ok := otherTypes[code]
	if !ok {
		name = fmt.Sprintf("number %d", code)
	}
	var have []string
	for d := kernels.F32; d <= kernels.Q6_K; d++ {
		have = append(have, d.String())
	}
	return 0, fmt.Errorf("type %s is not supported, expected one of %s", name, strings.Join(have, " "))
}
