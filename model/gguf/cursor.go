package gguf

import (
	"encoding/binary"
	"fmt"
)

// cursor reads little-endian values from data and refuses to go past its end.
type cursor struct {
	data []byte
	off  int
}

// bytes returns the next n bytes without copying them.
func (c *cursor) bytes(n uint64) ([]byte, error) {
	if left := uint64(len(c.data) - c.off); n > left {
		return nil, fmt.Errorf("%d bytes expected at byte %d, found %d", n, c.off, left)
	}
	b := c.data[c.off : c.off+int(n)]
	c.off += int(n)
	return b, nil
}

func (c *cursor) uint32() (uint32, error) {
	b, err := c.bytes(4)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (c *cursor) uint64() (uint64, error) {
	b, err := c.bytes(8)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// count reads a 64-bit count of items that take at least minBytes each, and
// checks that the rest of the file can hold them and that they are at most limit.
func (c *cursor) count(what string, minBytes, limit uint64) (int, error) {
	n, err := c.uint64()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	if left := uint64(len(c.data) - c.off); n > left/minBytes {
		return 0, fmt.Errorf("%s %d is too large: %d bytes are left, each takes at least %d", what, n, left, minBytes)
	}
	if n > limit {
		return 0, fmt.Errorf("%s %d is too large: at most %d", what, n, limit)
	}
	return int(n), nil
}

// string reads a length and that many bytes, at most limit.
func (c *cursor) string(limit uint64) (string, error) {
	n, err := c.uint64()
	if err != nil {
		return "", err
	}
	if n > limit {
		return "", fmt.Errorf("string of %d bytes, expected at most %d", n, limit)
	}
	b, err := c.bytes(n)
	return string(b), err
}
