// Package safetensors reads safetensors files, single or sharded. As in package
// gguf every length and offset is checked before it is used, and a hostile file
// gets an error.
//
// Source: the format section of the safetensors README.
package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"sort"

	"waybill/model/mmap"
)

// Limits of the format and of this reader.
const (
	// maxHeaderBytes is the reference implementation's limit.
	maxHeaderBytes = 100_000_000
	// maxDims is above the rank of any tensor in a language model (five, in the
	// patch embedding of a video tower).
	maxDims = 8
	// maxTensors bounds what is kept for each tensor, some 250 bytes, of which the
	// densest header needs ten. The largest files published have some 3,000.
	maxTensors = 1 << 17
)

// elemBytes gives the size of an element for each type the format knows. Only
// some can be packed; the others are read past without an error, for there are
// harmless buffers such as position ids.
var elemBytes = map[string]uint64{
	"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
	"U16": 2, "I16": 2, "F16": 2, "BF16": 2,
	"U32": 4, "I32": 4, "F32": 4,
	"U64": 8, "I64": 8, "F64": 8, "C64": 8,
}

// Tensor is one tensor of a file. Data points into the mapping and dies with it.
type Tensor struct {
	// File is the name of the file that holds it.
	File string
	// Name is the tensor's name, such as "model.norm.weight".
	Name string
	// DType is the element type as the file writes it, such as "BF16".
	DType string
	// Shape is row-major and empty for a scalar.
	Shape []int
	// Data holds the elements, rows one after another.
	Data []byte
}

// File is one parsed file.
type File struct {
	name    string
	tensors []Tensor
	mapping *mmap.File
}

// Open maps and parses the file at path.
func Open(path string) (*File, error) {
	m, err := mmap.Open(path)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	f, err := Parse(path, m.Bytes())
	if err != nil {
		m.Close()
		return nil, err
	}
	f.mapping = m
	return f, nil
}

// Close unmaps the file; the tensors' Data is gone.
func (f *File) Close() error {
	for i := range f.tensors {
		f.tensors[i].Data = nil
	}
	if f.mapping == nil {
		return nil
	}
	return f.mapping.Close()
}

// Tensors returns the tensors in the order of their data.
func (f *File) Tensors() []Tensor { return f.tensors }

// Parse reads a whole file from data. name is for error texts.
func Parse(name string, data []byte) (*File, error) {
	tensors, err := parse(name, data)
	if err != nil {
		return nil, fmt.Errorf("safetensors: %s: %w", name, err)
	}
	return &File{name: name, tensors: tensors}, nil
}

// entry is a tensor's description in the header.
type entry struct {
	DType   string  `json:"dtype"`
	Shape   shape   `json:"shape"`
	Offsets offsets `json:"data_offsets"`
}

// shape is a list of dimensions, and offsets a pair of positions. Both are short:
// a list of any length would take several times the text's bytes.
type (
	shape   []uint64
	offsets []*uint64
)

// UnmarshalJSON refuses more than maxDims dimensions.
func (s *shape) UnmarshalJSON(data []byte) error {
	if n := bytes.Count(data, []byte{','}) + 1; n > maxDims {
		return fmt.Errorf("%d dimensions, expected at most %d", n, maxDims)
	}
	return json.Unmarshal(data, (*[]uint64)(s))
}

// UnmarshalJSON refuses more than two numbers.
func (o *offsets) UnmarshalJSON(data []byte) error {
	if bytes.Count(data, []byte{','}) > 1 {
		return errNoPair
	}
	return json.Unmarshal(data, (*[]*uint64)(o))
}

var errNoPair = errors.New("data_offsets is no pair of numbers")

// notes are a file's remarks: texts by name, which nobody reads.
type notes struct{}

// UnmarshalJSON checks the form and keeps nothing.
func (notes) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errors.New("expected an object")
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		if v, err := d.Token(); err != nil {
			return err
		} else if _, ok := v.(string); !ok {
			return fmt.Errorf("%.50q is no text", name)
		}
	}
	return nil
}

func parse(name string, data []byte) ([]Tensor, error) {
	if len(data) < 8 {
		return nil, fmt.Errorf("file has %d bytes, expected at least 8", len(data))
	}
	n := binary.LittleEndian.Uint64(data)
	if room := uint64(len(data) - 8); n > room || n > maxHeaderBytes {
		return nil, fmt.Errorf("header of %d bytes, expected at most %d", n, min(room, maxHeaderBytes))
	}
	header, body := data[8:8+n], data[8+n:]
	entries, err := parseHeader(header)
	if err != nil {
		return nil, err
	}
	tensors := make([]Tensor, 0, len(entries))
	for tensorName, e := range entries {
		t := Tensor{File: name, Name: tensorName, DType: e.DType}
		if err := t.locate(e, body); err != nil {
			return nil, fmt.Errorf("tensor %q: %w", tensorName, err)
		}
		tensors = append(tensors, t)
	}
	return tensors, inOrder(tensors, entries, len(body))
}

// parseHeader decodes the JSON header key by key: a map would silently keep the
// last of two tensors with one name.
func parseHeader(header []byte) (map[string]entry, error) {
	if len(header) == 0 || header[0] != '{' {
		return nil, fmt.Errorf("header does not start with {")
	}
	d := json.NewDecoder(bytes.NewReader(header))
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	entries := map[string]entry{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("header: %w", err)
		}
		name := key.(string) // the decoder yields nothing else for a key
		if name == "__metadata__" {
			if err := d.Decode(new(notes)); err != nil {
				return nil, fmt.Errorf("header: __metadata__: %w", err)
			}
			continue
		}
		if _, ok := entries[name]; ok {
			return nil, fmt.Errorf("tensor %q occurs twice", name)
		}
		if len(entries) == maxTensors {
			return nil, fmt.Errorf("header: more than %d tensors", maxTensors)
		}
		var e entry
		if err := d.Decode(&e); err != nil {
			return nil, fmt.Errorf("header: tensor %q: %w", name, err)
		}
		entries[name] = e
	}
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("header: text after the closing brace")
	}
	return entries, nil
}

// locate checks e and cuts the tensor's bytes out of body.
func (t *Tensor) locate(e entry, body []byte) error {
	size, ok := elemBytes[e.DType]
	if !ok {
		return fmt.Errorf("unknown type %q", e.DType)
	}
	if len(e.Shape) > maxDims {
		return fmt.Errorf("%d dimensions, expected at most %d", len(e.Shape), maxDims)
	}
	if len(e.Offsets) != 2 || e.Offsets[0] == nil || e.Offsets[1] == nil {
		return errNoPair
	}
	from, to := *e.Offsets[0], *e.Offsets[1]
	if from > to || to > uint64(len(body)) {
		return fmt.Errorf("data from byte %d to %d, but the data section has %d bytes", from, to, len(body))
	}
	t.Shape = make([]int, len(e.Shape))
	for i, d := range e.Shape {
		// With another dimension of 0 the product says nothing about this one.
		if d > math.MaxInt64 || d != 0 && size > math.MaxInt64/d {
			return fmt.Errorf("shape %v is too large", e.Shape)
		}
		size *= d
		t.Shape[i] = int(d)
	}
	if size != to-from {
		return fmt.Errorf("%s %v takes %d bytes, data_offsets give %d", e.DType, e.Shape, size, to-from)
	}
	t.Data = body[from:to:to]
	return nil
}

// inOrder sorts the tensors by their data and refuses holes and overlaps, as the
// format demands.
func inOrder(tensors []Tensor, entries map[string]entry, bodyBytes int) error {
	from := func(i int) uint64 { return *entries[tensors[i].Name].Offsets[0] }
	sort.Slice(tensors, func(a, b int) bool {
		if fa, fb := from(a), from(b); fa != fb {
			return fa < fb
		}
		if la, lb := len(tensors[a].Data), len(tensors[b].Data); la != lb {
			return la < lb
		}
		return tensors[a].Name < tensors[b].Name
	})
	end := uint64(0)
	for i := range tensors {
		if from(i) != end {
			return fmt.Errorf("tensor %q starts at byte %d of the data section, expected %d", tensors[i].Name, from(i), end)
		}
		end += uint64(len(tensors[i].Data))
	}
	if end != uint64(bodyBytes) {
		return fmt.Errorf("data section has %d bytes, the tensors take %d", bodyBytes, end)
	}
	return nil
}
