package cpu

import (
	"testing"
	"time"
)

func TestStallsRestWorkers(t *testing.T) {
	now := time.Unix(0, 0)
	s := &stalls{}
	// windows runs n steps of one window each, in which the owner waits for workers
	// that help, and returns how many they helped with.
	windows := func(n int, waited time.Duration) (helped int) {
		for range n {
			help := s.begin(now)
			now = now.Add(stallWindow)
			if help {
				helped++
				s.waited += waited
				s.judge(now)
				s.end(now)
			}
		}
		return helped
	}
	check := func(what string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: workers helped in %d windows, want %d", what, got, want)
		}
	}
	const short, long = stallWindow / 5, stallWindow / 4
	check("short waits", windows(100, short), 100)
	check("one long wait", windows(1, long), 1)
	check("after one long wait", windows(100, 0), 100)
	// The first is let pass; tries with rests of 2, 4, 8, 16, 32 and 64 windows behind them.
	check("long waits", windows(1+6+126, long), 7)
	check("later", windows(65, long), 1)
	check("waits over", windows(100, 0), 100)
	check("long waits again", windows(10, long), 4) // one let pass, rests of 2 and 4, and the next try
}

// A window goes on over steps that are shorter than it, and a rest ends within a
// step that is longer.
func TestStallsMeasureTimeAndNotSteps(t *testing.T) {
	now := time.Unix(0, 0)
	s := &stalls{}
	for range 2 {
		for range 4 { // steps of a quarter, a second apart
			if !s.begin(now) {
				t.Fatal("a rest before two windows are over")
			}
			now = now.Add(stallWindow / 4)
			s.waited += stallWindow / 8
			if s.judge(now) {
				s.end(now)
			}
			now = now.Add(time.Second)
		}
	}
	// Both windows stalled; the second one's rest passed during the idle second.
	if !s.begin(now) {
		t.Fatal("a rest goes on after a second without work")
	}
	now = now.Add(stallWindow)
	s.waited = stallWindow
	if s.judge(now) {
		t.Fatal("no rest after three stalled windows")
	}
	rest := s.until.Sub(now)
	if rest < stallWindow || rest > maxRest {
		t.Fatalf("a rest of %v", rest)
	}
	if s.begin(now.Add(rest - 1)) {
		t.Fatal("workers help in a rest")
	}
	if !s.begin(now.Add(rest)) {
		t.Fatal("no worker helps after the rest")
	}
}
