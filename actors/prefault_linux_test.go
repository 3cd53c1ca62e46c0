package actors

import (
	"fmt"
	"os"
	"runtime/debug"
	"testing"
)

// resident returns the memory that this process has, in bytes.
func resident(t *testing.T) int64 {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var all, pages int64
	if _, err := fmt.Sscan(string(data), &all, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// The system has handed all KV memory out when the engine is ready: no step is the first
// to touch any of it.
func TestKVMemoryIsThereWhenTheEngineIsReady(t *testing.T) {
	cfg := testConfig()
	cfg.NumBlocks = 4096
	debug.FreeOSMemory() // not while this is measured
	before := resident(t)
	e := startEngine(t, cfg)
	kv := e.model.CacheSpec(cfg.BlockSize, cfg.NumBlocks, cfg.KVType).Bytes()
	if grown := resident(t) - before; kv < 64<<20 || grown < kv*3/4 {
		t.Errorf("%d MiB of KV memory, the process grew by %d", kv>>20, grown>>20)
	}
}
