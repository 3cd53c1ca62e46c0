//go:build !unix

package mmap

import (
	"io"
	"os"
)

// mapFile reads the file where there is no mmap: it needs the model's size in
// memory until the weights are packed.
func mapFile(f *os.File, size int) ([]byte, error) {
	data := make([]byte, size)
	_, err := io.ReadFull(f, data)
	return data, err
}

func unmap([]byte) error { return nil }
