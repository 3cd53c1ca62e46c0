package actors

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// The same workload must give the same greedy tokens whatever the scheduler's
// limits: they decide when a token is computed, never which one.
func TestTokensDoNotDependOnTheScheduler(t *testing.T) {
	base := testConfig()
	for _, v := range []struct {
		name string
		set  func(*Config)
	}{
		{"block size 1", func(c *Config) { c.BlockSize, c.NumBlocks = 1, 4096 }},
		{"block size 7", func(c *Config) { c.BlockSize, c.NumBlocks = 7, 600 }},
		{"block size 64", func(c *Config) { c.BlockSize, c.NumBlocks = 64, 64 }},
		{"one sequence at a time", func(c *Config) { c.MaxSeqs = 1 }},
		{"chunks of 8 tokens", func(c *Config) { c.MaxBatchedTokens = 8 }},
		{"chunks of 512 tokens", func(c *Config) { c.MaxBatchedTokens = 512 }},
		{"chunks of 1 ms", func(c *Config) { c.PrefillChunk = time.Millisecond }},
		{"no prefix cache", func(c *Config) { c.PrefixCache = false }},
		{"preemption", func(c *Config) { c.MaxModelLen, c.NumBlocks = 560, 36 }},
		{"preemption without prefix cache", func(c *Config) { c.MaxModelLen, c.NumBlocks, c.PrefixCache = 560, 36, false }},
	} {
		t.Run(v.name, func(t *testing.T) {
			cfg := base
			v.set(&cfg)
			e := startEngine(t, cfg)
			var wg sync.WaitGroup
			if cfg.NumBlocks == 36 {
				// Four long outputs side by side need three times the pool.
				for range 4 {
					wg.Go(func() {
						if _, err := e.serve(e.request(longIDs(100), 300), &testConn{}); err != nil {
							t.Error(err)
						}
					})
				}
			}
			for round := range 2 {
				for i, g := range goldens(t) {
					if len(g.IDs)+len(g.Tokens) > cfg.MaxModelLen {
						t.Fatalf("prompt %d does not fit", i)
					}
					wg.Go(func() {
						got, err := e.serve(e.request(g.IDs, len(g.Tokens)), &testConn{})
						if err != nil || fmt.Sprint(got) != fmt.Sprint(g.Tokens) {
							t.Errorf("round %d prompt %d: %v\n got %v\nwant %v", round, i, err, got, g.Tokens)
						}
					})
				}
			}
			wg.Wait()
			e.quiet()
			if n := e.metrics.preemptions.Load(); (n > 0) != (cfg.NumBlocks == 36) {
				t.Errorf("%d preemptions with %d blocks", n, cfg.NumBlocks)
			}
		})
	}
}
