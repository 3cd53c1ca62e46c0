package gguf

import (
	"strings"
	"testing"
)

func TestErrorsPrintKeysOnOneShortLine(t *testing.T) {
	for name, key := range map[string]string{"binary": "a\n\x1b[31mb\xff", "long": strings.Repeat("k", 5000)} {
		b := head(0, 1)
		b.str(key).u32(77) // no such type
		_, err := Parse("t", b.Bytes())
		if err == nil {
			t.Fatalf("%s: no error", name)
		}
		if s := err.Error(); len(s) > 300 || strings.ContainsAny(s, "\n\x1b\xff") || !strings.Contains(s, "77") {
			t.Errorf("%s: got %q, want one short line that names the type", name, s)
		}
		b = head(0, 2)
		b.str(key).u32(7).WriteByte(1)
		b.str(key).u32(7).WriteByte(1)
		if _, err := Parse("t", b.Bytes()); err == nil || len(err.Error()) > 300 || strings.ContainsAny(err.Error(), "\n\x1b\xff") {
			t.Errorf("%s, twice: got %.100q…", name, err)
		}
	}
	b := head(0, 1)
	b.str("general.name").u32(77)
	if _, err := Parse("t", b.Bytes()); err == nil || !strings.Contains(err.Error(), ": general.name: ") {
		t.Errorf("an ordinary key: got %v", err)
	}
}
