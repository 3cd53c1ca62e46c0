package actors

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// lockedLog is a log that may be read while it is written.
type lockedLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A handler that runs too long is named once, with its stack, is over when it is,
// and nothing is stopped by it; so is a step.
func TestStuckHandlersAreNamedOnce(t *testing.T) {
	for point, actor := range map[string]string{"detokenizer": "detokenizer-", "scheduler": "scheduler-1", "step": "gpu-step-1"} {
		t.Run(point, func(t *testing.T) {
			var once atomic.Bool
			log := &lockedLog{}
			cfg := testConfig()
			cfg.StuckAfter = 200 * time.Millisecond
			cfg.Log = slog.New(slog.NewTextHandler(log, nil))
			cfg.Fault = func(p string) {
				if p == point && once.CompareAndSwap(false, true) {
					time.Sleep(1200 * time.Millisecond)
				}
			}
			e := startEngine(t, cfg)
			g := goldens(t)[0]
			if got, err := e.serve(e.request(g.IDs, len(g.Tokens)), &testConn{}); err != nil || fmt.Sprint(got) != fmt.Sprint(g.Tokens) {
				t.Errorf("%s: %v, tokens %v, want %v", point, err, got, g.Tokens)
			}
			list := e.stuck.incidents()
			if len(list) != 1 || !strings.HasPrefix(list[0].Actor, actor) || list[0].ForMs < 200 || !strings.Contains(list[0].Stack, "time.Sleep") {
				t.Errorf("%s: incidents %+v", point, list)
			}
			if n := strings.Count(log.String(), "handler is stuck"); n != 1 {
				t.Errorf("%s: %d lines: %s", point, n, log)
			}
			for end := time.Now().Add(5 * time.Second); !e.stuck.incidents()[0].Over; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%s: it is not over", point)
				}
			}
		})
	}
}
