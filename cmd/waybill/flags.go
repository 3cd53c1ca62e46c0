package main

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// byDevice is the value of flags whose default depends on the device.
const byDevice = -1

var deviceFlags = map[string]bool{"--max-num-seqs": true, "--max-num-batched-tokens": true}

// check returns an error for the first flag whose value is out of range. The
// upper ends are far above any use; they keep products of flags within an int and
// a slip of the finger from taking all memory.
func (c *serveCmd) check() error {
	for _, f := range []struct {
		flag       string
		v, lo, top int
	}{
		{"--port", c.Port, 0, 65535},
		{"--max-model-len", c.MaxModelLen, 0, 1 << 30},
		{"--max-num-seqs", c.MaxNumSeqs, 1, 1 << 16},
		{"--max-num-batched-tokens", c.MaxNumBatchedTokens, 1, 1 << 20},
		{"--block-size", c.BlockSize, 1, 1 << 16},
		{"--max-num-queued-reqs", c.MaxNumQueuedReqs, 1, 1 << 20}, // mailboxes have 4 places for each
		{"--max-num-queued-tokens", c.MaxNumQueuedTokens, 0, 1 << 40},
		{"--prefill-chunk-ms", c.PrefillChunkMs, 0, 60_000},
		{"--sse-keep-alive-interval", c.SSEKeepAlive, 0, 86_400},
		{"--threads", c.Threads, 0, 1024},
	} {
		if f.v == byDevice && deviceFlags[f.flag] {
			continue
		}
		if f.v < f.lo || f.v > f.top {
			return fmt.Errorf("%s must be between %d and %d, got %d", f.flag, f.lo, f.top, f.v)
		}
	}
	if slices.Contains(c.ServedModelName, "") {
		return errors.New("--served-model-name holds an empty name")
	}
	if u := c.GPUMemoryUtilization; !(u > 0 && u <= 1) {
		return fmt.Errorf("--gpu-memory-utilization must be above 0 and at most 1, got %g", u)
	}
	for _, f := range []struct {
		flag string
		v    time.Duration
	}{{"--drain-grace", c.DrainGrace}, {"--shutdown-timeout", c.ShutdownTimeout}} {
		if f.v < 0 {
			return fmt.Errorf("%s must not be negative, got %v", f.flag, f.v)
		}
	}
	return nil
}
