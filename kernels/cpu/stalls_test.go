package cpu

import (
	"testing"
	"time"
)

func TestStallsRestWorkers(t *testing.T) {
	now := time.Unix(0, 0)
	s := &stalls{}
	// steps runs n steps of 10 ms and returns how many workers helped with.
	steps := func(n int, waited time.Duration) (helped int) {
		for range n {
			help := s.begin(now)
			now = now.Add(10 * time.Millisecond)
			if help {
				helped++
				s.waited += waited
				s.end(now)
			}
		}
		return helped
	}
	check := func(what string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: workers helped with %d steps, want %d", what, got, want)
		}
	}
	check("short waits", steps(100, 2*time.Millisecond), 100)
	// Tries with rests of 1, 2, 4, 8, 16, 32 and 64 steps behind them.
	check("long waits", steps(7+127, 3*time.Millisecond), 7)
	check("later", steps(65, 3*time.Millisecond), 1)
	check("waits over", steps(100, 0), 100)
	check("long waits again", steps(10, 3*time.Millisecond), 3) // rests of 1, 2 and 4
}
