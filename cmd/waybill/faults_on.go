//go:build faults

package main

import (
	"os"
	"time"

	"waybill/actors"
)

// plantFaults makes steps hang as long as the file that WAYBILL_TEST_HANG names
// exists, and else slow enough for a test to act in the middle of an answer. Only
// tests build with the tag faults.
func plantFaults(cfg *actors.Config) {
	file := os.Getenv("WAYBILL_TEST_HANG")
	if file == "" {
		return
	}
	cfg.Fault = func(point string) {
		if point != "step" {
			return
		}
		for {
			time.Sleep(5 * time.Millisecond)
			if _, err := os.Stat(file); err != nil {
				return
			}
		}
	}
}
