package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
)

// Type is the type of a metadata value.
type Type uint32

// The value types, numbered as in the specification.
const (
	Uint8 Type = iota
	Int8
	Uint16
	Int16
	Uint32
	Int32
	Float32
	Bool
	String
	Array
	Uint64
	Int64
	Float64
	numTypes
)

var typeNames = [numTypes]string{"uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "bool",
	"string", "array", "uint64", "int64", "float64"}

// String returns the specification's name of the type.
func (t Type) String() string {
	if t < numTypes {
		return typeNames[t]
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// minBytes returns the smallest encoding of a value; for all but strings and
// arrays it is the only one.
func (t Type) minBytes() uint64 {
	switch t {
	case Uint8, Int8, Bool:
		return 1
	case Uint16, Int16:
		return 2
	case Uint32, Int32, Float32:
		return 4
	case Array:
		return 4 + 8
	default: // String's length, and the 64-bit numbers
		return 8
	}
}

// Value is one metadata value. It was checked when the file was parsed, and is
// decoded when asked for: a vocabulary of 150,000 strings costs nothing until
// somebody wants it.
type Value struct {
	typ  Type
	elem Type // of an array
	len  int  // of an array
	from int  // of the encoding without type and count, in the header
	to   int
	raw  []byte
}

// Type returns the value's type.
func (v Value) Type() Type { return v.typ }

// Len returns the number of elements of an array, else 0.
func (v Value) Len() int { return v.len }

// Metadata holds a file's keys and values.
type Metadata map[string]Value

// maxShownBytes bounds how much of a key an error repeats.
const maxShownBytes = 80

// shown returns a key as it may be printed: a damaged file's are any bytes.
func shown(key string) string {
	q := strconv.Quote(clipped(key))
	if q[1:len(q)-1] == key {
		return key
	}
	return q
}

func clipped(key string) string {
	if len(key) > maxShownBytes {
		return key[:maxShownBytes] + "…"
	}
	return key
}

// parseMetadata reads n keys and values.
func parseMetadata(c *cursor, n int) (Metadata, error) {
	m := make(Metadata, n)
	start := c.off
	// n was checked against the file's size, so the loop ends with the file.
	for i := range n {
		key, err := c.string(maxKeyBytes)
		if err != nil {
			return nil, fmt.Errorf("metadata key %d: %w", i, err)
		}
		if _, ok := m[key]; ok {
			return nil, fmt.Errorf("metadata key %q occurs twice", clipped(key))
		}
		t, err := c.uint32()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", shown(key), err)
		}
		v, err := parseValue(c, Type(t), 0)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", shown(key), err)
		}
		m[key] = v
	}
	// The file is unmapped after packing, the metadata is still asked for: keep
	// a copy of the section and let the values point into that.
	section := append([]byte(nil), c.data[start:c.off]...)
	for key, v := range m {
		v.raw = section[v.from-start : v.to-start]
		m[key] = v
	}
	return m, nil
}

// parseValue walks over one value and checks all its lengths.
func parseValue(c *cursor, t Type, depth int) (Value, error) {
	v := Value{typ: t, from: c.off}
	switch {
	case t >= numTypes:
		return v, fmt.Errorf("unknown value %s", t)
	case t == Array:
		e, err := c.uint32()
		if err != nil {
			return v, err
		}
		if v.elem = Type(e); v.elem >= numTypes {
			return v, fmt.Errorf("unknown element %s", v.elem)
		}
		if depth == maxNesting {
			return v, fmt.Errorf("arrays nested deeper than %d", maxNesting)
		}
		if v.len, err = c.count("array length", v.elem.minBytes(), math.MaxInt64); err != nil {
			return v, err
		}
		v.from = c.off
		// Numbers need no walk: their count times their size is all there is.
		if v.elem != String && v.elem != Array {
			_, err = c.bytes(uint64(v.len) * v.elem.minBytes())
			v.to = c.off
			return v, err
		}
		for i := range v.len {
			if _, err := parseValue(c, v.elem, depth+1); err != nil {
				return v, fmt.Errorf("element %d: %w", i, err)
			}
		}
	case t == String:
		n, err := c.uint64()
		if err != nil {
			return v, err
		}
		v.from = c.off
		if _, err := c.bytes(n); err != nil {
			return v, err
		}
	default:
		if _, err := c.bytes(t.minBytes()); err != nil {
			return v, err
		}
	}
	v.to = c.off
	return v, nil
}

// Int returns an integer of any width that fits an int.
func (v Value) Int() (int, error) {
	n, ok := integer(v.typ, v.raw)
	if !ok {
		return 0, fmt.Errorf("%s, expected an integer that fits 64 bits", v.typ)
	}
	return int(n), nil
}

// Float returns a number of any type.
func (v Value) Float() (float64, error) {
	if f, ok := float(v.typ, v.raw); ok {
		return f, nil
	}
	if n, ok := integer(v.typ, v.raw); ok {
		return float64(n), nil
	}
	return 0, fmt.Errorf("%s, expected a number", v.typ)
}

// Bool returns a boolean.
func (v Value) Bool() (bool, error) {
	if v.typ != Bool {
		return false, fmt.Errorf("%s, expected bool", v.typ)
	}
	return v.raw[0] != 0, nil
}

// Str returns a string.
func (v Value) Str() (string, error) {
	if v.typ != String {
		return "", fmt.Errorf("%s, expected string", v.typ)
	}
	return string(v.raw), nil
}

// Strings returns an array of strings. All share one allocation.
func (v Value) Strings() ([]string, error) {
	if v.typ != Array || v.elem != String {
		return nil, v.wrongArray("strings")
	}
	// Lengths were checked by parseValue's walk over the same bytes.
	all, out, off := string(v.raw), make([]string, v.len), 0
	for i := range out {
		n := int(binary.LittleEndian.Uint64(v.raw[off:]))
		off += 8
		out[i] = all[off : off+n]
		off += n
	}
	return out, nil
}

// Floats returns an array of numbers as float32.
func (v Value) Floats() ([]float32, error) {
	if v.typ != Array || v.elem == String || v.elem == Array || v.elem == Bool {
		return nil, v.wrongArray("numbers")
	}
	out, size := make([]float32, v.len), int(v.elem.minBytes())
	for i := range out {
		raw := v.raw[i*size : (i+1)*size]
		if f, ok := float(v.elem, raw); ok {
			out[i] = float32(f)
			continue
		}
		n, _ := integer(v.elem, raw)
		out[i] = float32(n)
	}
	return out, nil
}

// Int32s returns an array of integers that all fit 32 bits.
func (v Value) Int32s() ([]int32, error) {
	if v.typ != Array || v.elem == String || v.elem == Array {
		return nil, v.wrongArray("integers")
	}
	out, size := make([]int32, v.len), int(v.elem.minBytes())
	for i := range out {
		n, ok := integer(v.elem, v.raw[i*size:(i+1)*size])
		if !ok || n != int64(int32(n)) {
			return nil, fmt.Errorf("element %d of an array of %s is no 32-bit integer", i, v.elem)
		}
		out[i] = int32(n)
	}
	return out, nil
}

// wrongArray names the type found and the one expected.
func (v Value) wrongArray(want string) error {
	if v.typ != Array {
		return fmt.Errorf("%s, expected an array of %s", v.typ, want)
	}
	return fmt.Errorf("array of %s, expected an array of %s", v.elem, want)
}

// integer decodes an integer type; not ok if it is none or exceeds an int64.
func integer(t Type, raw []byte) (int64, bool) {
	le := binary.LittleEndian
	switch t {
	case Uint8:
		return int64(raw[0]), true
	case Int8:
		return int64(int8(raw[0])), true
	case Uint16:
		return int64(le.Uint16(raw)), true
	case Int16:
		return int64(int16(le.Uint16(raw))), true
	case Uint32:
		return int64(le.Uint32(raw)), true
	case Int32:
		return int64(int32(le.Uint32(raw))), true
	case Uint64:
		n := le.Uint64(raw)
		return int64(n), n <= math.MaxInt64
	case Int64:
		return int64(le.Uint64(raw)), true
	}
	return 0, false
}

// float decodes a floating-point type; not ok if it is none.
func float(t Type, raw []byte) (float64, bool) {
	switch t {
	case Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(raw))), true
	case Float64:
		return math.Float64frombits(binary.LittleEndian.Uint64(raw)), true
	}
	return 0, false
}
