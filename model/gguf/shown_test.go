package gguf

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestErrorsPrintKeysOnOneShortLine(t *testing.T) {
	for name, key := range map[string]string{"binary": "a\n\x1b[31mb\xff", "long": strings.Repeat("k", 5000)} {
		b := head(0, 1)
		b.str(key).u32(77) // no such type
		_, err := Parse("t", b.Bytes())
		if err == nil {
			t.Fatalf("%s: no error", name)
		}
		if s := err.Error(); len(s) > 300 || ugly(s) || !strings.Contains(s, "77") {
			t.Errorf("%s: got %q, want one short line that names the type", name, s)
		}
		b = head(0, 2)
		b.str(key).u32(7).WriteByte(1)
		b.str(key).u32(7).WriteByte(1)
		if _, err := Parse("t", b.Bytes()); err == nil || len(err.Error()) > 300 || ugly(err.Error()) {
			t.Errorf("%s, twice: got %.100q…", name, err)
		}
	}
	b := head(0, 1)
	b.str("general.name").u32(77)
	if _, err := Parse("t", b.Bytes()); err == nil || !strings.Contains(err.Error(), ": general.name: ") {
		t.Errorf("an ordinary key: got %v", err)
	}
}

// ugly reports whether a message would break a line or a terminal.
func ugly(s string) bool { return strings.ContainsAny(s, "\n\x1b") || !utf8.ValidString(s) }
