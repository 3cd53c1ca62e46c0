package bench

import (
	"strings"
	"testing"
)

// events parses s in pieces whose lengths cut gives (the last one repeats).
func events(s string, cut ...int) (out []string, err error) {
	var p sseParser
	emit := func(b []byte) error { out = append(out, string(b)); return nil }
	for i := 0; len(s) > 0; i++ {
		n := len(s)
		if len(cut) > 0 {
			n = min(n, max(cut[min(i, len(cut)-1)], 1))
		}
		if err := p.feed([]byte(s[:n]), emit); err != nil {
			return out, err
		}
		s = s[n:]
	}
	return out, p.close(emit)
}

func wantEvents(t *testing.T, stream string, want ...string) {
	t.Helper()
	for cut := range len(stream) + 1 {
		got, err := events(stream, cut)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Fatalf("%q in pieces of %d: got %q, want %q", stream, cut, got, want)
		}
	}
}

func TestEventsAreTheSameHoweverTheStreamIsCut(t *testing.T) {
	wantEvents(t, "data: {\"a\":1}\n\ndata: [DONE]\n\n", `{"a":1}`, "[DONE]")
	wantEvents(t, "data: {\"a\":1}\r\n\r\ndata:{\"b\":2}\r\n\r\n", `{"a":1}`, `{"b":2}`)
	wantEvents(t, "data: {\"a\":1}\r\rdata: {\"b\":2}\r\r", `{"a":1}`, `{"b":2}`)
}

func TestCommentsAndOtherFieldsAreIgnored(t *testing.T) {
	wantEvents(t, ": keep-alive\n\n: x\nevent: e\nid: 1\nretry: 5\ndata: {\"a\":1}\n\ndatax: 7\n\n", `{"a":1}`)
	wantEvents(t, "\xef\xbb\xbfdata: {}\n\n", "{}")
}

func TestAMissingBlankLineSeparatesCompleteJSON(t *testing.T) {
	wantEvents(t, "data: {\"a\":1}\ndata: {\"b\":2}\ndata: [DONE]", `{"a":1}`, `{"b":2}`, "[DONE]")
	wantEvents(t, ": ping\ndata: {\"a\":1}\n: ping\ndata: {\"b\":2}\n", `{"a":1}`, `{"b":2}`)
}

func TestAnEventMaySpreadOverDataLines(t *testing.T) {
	wantEvents(t, "data: {\"a\":\ndata: 1}\n\ndata\ndata: x\n\ndata:\n\n", "{\"a\":\n1}", "\nx")
}

func TestAnEndlessEventIsAnError(t *testing.T) {
	var p sseParser
	chunk := []byte("data: " + strings.Repeat("x", 1<<20) + "\n")
	for range 20 {
		if err := p.feed(chunk, func([]byte) error { return nil }); err != nil {
			if len(p.line)+len(p.data) > maxEvent {
				t.Fatalf("%d bytes are held", len(p.line)+len(p.data))
			}
			return
		}
	}
	t.Fatal("20 MiB of one event were taken")
}

func FuzzEventsDoNotDependOnTheCuts(f *testing.F) {
	f.Add("data: {\"a\":1}\n\ndata: [DONE]\n\n", 3, 1)
	f.Add(": ping\r\n\r\ndata: {}\r\ndata: {\r\ndata: }\r\n", 1, 2)
	f.Add("data: {}\r", 8, 1)
	f.Fuzz(func(t *testing.T, s string, a, b int) {
		want, err := events(s)
		if err != nil {
			t.Skip("not a stream of events")
		}
		got, err := events(s, a, b)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			t.Fatalf("%q: %d events in pieces of %d and %d, %d whole", s, len(got), a, b, len(want))
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%q: event %d is %q in pieces, %q whole", s, i, got[i], want[i])
			}
		}
	})
}
