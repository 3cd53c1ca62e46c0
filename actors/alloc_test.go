package actors

import (
	"runtime"
	"testing"
)

func TestDecodeAllocationsPerToken(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates for itself; the plain run counts")
	}
	e := startEngine(t, testConfig())
	const n = 700
	var before, after runtime.MemStats
	c := &countingConn{at: map[int]*runtime.MemStats{100: &before, 600: &after}}
	r := e.request(longIDs(20), n)
	r.Encoder = quietEncoder{}
	w := e.Submit(r)
	if err := w.First(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteTo(c, &testConn{}); err != nil {
		t.Fatal(err)
	}
	r.ResponseDone(e.Engine)
	// Growing tables (a block per 16 tokens, the token list) cost a tenth of an
	// allocation per token; the rest of the bound is for the runtime's own on a
	// busy machine. A single allocation per token anywhere on the path fails it.
	if n := float64(after.Mallocs-before.Mallocs) / 500; n > 0.7 {
		t.Errorf("%.2f allocations, %.0f bytes per token, want none but those of growing tables",
			n, float64(after.TotalAlloc-before.TotalAlloc)/500)
	}
	e.quiet()
}

// quietEncoder writes a byte per delta.
type quietEncoder struct{ textEncoder }

func (quietEncoder) AppendDelta(dst []byte, d *Delta) []byte { return append(dst, '.') }

// countingConn reads memory statistics at given bytes.
type countingConn struct {
	n  int
	at map[int]*runtime.MemStats
}

func (c *countingConn) Write(p []byte) (int, error) {
	for range p {
		if m := c.at[c.n]; m != nil {
			runtime.ReadMemStats(m)
		}
		c.n++
	}
	return len(p), nil
}
