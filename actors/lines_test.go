package actors

import (
	"bytes"
	"testing"
)

// Whoever still has something to say when the process ends loses it, and no more.
func TestLinesAfterTheEndAreLost(t *testing.T) {
	var b bytes.Buffer
	w := NewLineWriter(&b)
	for _, s := range []string{"one\n", "", "two\n"} {
		if n, err := w.Write([]byte(s)); n != len(s) || err != nil {
			t.Errorf("Write(%q) = %d, %v", s, n, err)
		}
	}
	for range 2 {
		if err := w.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if n, err := w.Write([]byte("late\n")); n != 5 || err != nil {
			t.Errorf("a late Write = %d, %v", n, err)
		}
	}
	if got, want := b.String(), "one\ntwo\n"; got != want {
		t.Errorf("written: %q, want %q", got, want)
	}
}
