package bench

import (
	"context"
	"testing"
	"time"
)

// TestUntilIsNeverEarly waits for moments that are no whole milliseconds away.
func TestUntilIsNeverEarly(t *testing.T) {
	for i := range 20 {
		at := time.Now().Add(time.Duration(i) * 370 * time.Microsecond)
		until(t.Context(), at)
		if late := time.Since(at); late < 0 {
			t.Errorf("%v early", -late)
		}
	}
}

func TestUntilEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	from := time.Now()
	until(ctx, from.Add(time.Minute))
	if took := time.Since(from); took > 30*time.Second {
		t.Errorf("took %v", took)
	}
}
