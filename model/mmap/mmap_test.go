package mmap

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpenMapsTheWholeFile(t *testing.T) {
	for _, content := range []string{"", "x", strings.Repeat("page", 5000)} {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(f.Bytes()) != content || f.Path() != path {
			t.Errorf("%d bytes of %s mapped, want %d of %s", len(f.Bytes()), f.Path(), len(content), path)
		}
		if err := f.Close(); err != nil || f.Bytes() != nil {
			t.Errorf("after Close: %v, %d bytes left", err, len(f.Bytes()))
		}
		if err := f.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
	}
}

func TestOpenRefusesWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: got %v", err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("folder: got %v", err)
	}
}
