package actors

import (
	"testing"
	"time"
)

const ms = int64(time.Millisecond)

// busy returns a rate whose places came back every gap milliseconds, and the time
// of the last one.
func busy(r *serviceRate, start, gap int64, n int) int64 {
	r.taken(0, start)
	now := start
	for range n {
		now += gap * ms
		r.gaveBack(now)
	}
	return now
}

func TestRetryAfterFollowsTheMeasuredRate(t *testing.T) {
	for _, c := range []struct {
		gap, n int64
		want   time.Duration
	}{
		{10, 1, time.Second}, // below the header's unit
		{2500, 1, 2500 * time.Millisecond},
		{2500, 4, 10 * time.Second},
		{90_000, 1, maxRetryAfter},
		{2500, 128, maxRetryAfter},
	} {
		var r serviceRate
		now := busy(&r, 7, c.gap, 2*rateWindow)
		if got := r.refused(c.n, now); got != c.want {
			t.Errorf("%d places, one each %d ms: come again after %v, want %v", c.n, c.gap, got, c.want)
		}
	}
}

func TestRefusedClientsGetTurns(t *testing.T) {
	var r serviceRate
	now := busy(&r, 0, 500, 10)
	for i := int64(1); i <= 8; i++ {
		want := max(time.Duration(i*500*ms), minRetryAfter)
		if got := r.refused(1, now); got != want {
			t.Errorf("refusal %d: %v, want %v", i, got, want)
		}
	}
	// Two seconds later four turns have passed, and the places came back as before.
	for range 4 {
		now += 500 * ms
		r.gaveBack(now)
	}
	if got, want := r.refused(1, now), 2500*time.Millisecond; got != want {
		t.Errorf("after two seconds: %v, want %v", got, want)
	}
}

func TestIdleTimeIsNoSlowService(t *testing.T) {
	var r serviceRate
	now := busy(&r, 0, 500, 10)
	now += int64(time.Hour)
	r.taken(0, now)
	if got := r.refused(4, now+ms); got != 2*time.Second {
		t.Errorf("nothing came back since the hour of rest: %v, want the rate before it, 2 s", got)
	}
	now = busy(&r, now, 2000, 3)
	if got := r.refused(1, now); got != 2*time.Second {
		t.Errorf("three places in 6 s: %v, want 2 s", got)
	}
}

func TestAServerThatStandsStillGetsSlower(t *testing.T) {
	var r serviceRate
	now := busy(&r, 0, 100, 20)
	if got := r.refused(1, now+int64(200*time.Second)); got < 9*time.Second {
		t.Errorf("20 places in 202 s: %v", got)
	}
}
