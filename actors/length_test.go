package actors

import (
	"math"
	"testing"
)

func TestOutputBoundsAreHeldToTheContext(t *testing.T) {
	e := &Engine{cfg: Config{MaxModelLen: 100}}
	check := func(prompt, maxTokens int, fit bool, want int) {
		t.Helper()
		got, f := e.checkLength(&Request{MaxTokens: maxTokens, FitMaxTokens: fit}, prompt)
		if f != nil {
			got = -f.Status
		}
		if got != want {
			t.Errorf("prompt %d, max_tokens %d, fit %t: got %d, want %d (negative: refused)", prompt, maxTokens, fit, got, want)
		}
	}
	check(40, 60, false, 60)
	check(40, 61, false, -400)
	check(40, 61, true, 60)
	check(40, -1, false, 60)
	check(99, 1, false, 1)
	check(100, 1, false, -400)
	check(100, 0, false, 0) // echo and nothing more
	check(101, 0, false, -400)
	// Sums that do not fit an int.
	check(40, math.MaxInt, false, -400)
	check(40, math.MaxInt-39, false, -400)
	check(40, math.MaxInt, true, 60)
}
