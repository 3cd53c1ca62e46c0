// Package mmap maps model files into memory, read-only. It is the only place
// that touches the system call; the readers of both file formats work on plain
// byte slices, so that tests can feed them hostile bytes directly.
package mmap

import (
	"fmt"
	"os"
)

// File is one mapped file. It is not safe for concurrent Close.
type File struct {
	path string
	data []byte
}

// Open maps the regular file at path. An empty file maps to no bytes. A file
// that is truncated while it is mapped ends the process with SIGBUS, as with
// any mapped file: models are to be replaced by rename, not in place.
func Open(path string) (*File, error) {
	// Looked at before it is opened: opening a named pipe waits for a writer.
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("mmap: %s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	// The mapping outlives the descriptor.
	defer f.Close()
	if st, err = f.Stat(); err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	size := st.Size()
	if size == 0 {
		return &File{path: path}, nil
	}
	if int64(int(size)) != size {
		return nil, fmt.Errorf("mmap: %s has %d bytes, more than an address space holds", path, size)
	}
	data, err := mapFile(f, int(size))
	if err != nil {
		return nil, fmt.Errorf("mmap: map %d bytes of %s: %w", size, path, err)
	}
	return &File{path: path, data: data}, nil
}

// Path returns the path that Open was given.
func (f *File) Path() string { return f.path }

// Bytes returns the file's contents. Writing to them or using them after Close
// ends the process.
func (f *File) Bytes() []byte { return f.data }

// Close unmaps the file. A second call does nothing.
func (f *File) Close() error {
	if f.data == nil {
		return nil
	}
	data := f.data
	f.data = nil
	if err := unmap(data); err != nil {
		return fmt.Errorf("mmap: unmap %s: %w", f.path, err)
	}
	return nil
}
