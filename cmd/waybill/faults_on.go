//go:build faults

package main

import (
	"os"
	"time"

	"waybill/actors"
)

// plantFaults makes steps hang as long as the file that WAYBILL_TEST_HANG names
// exists. Only tests build with the tag faults.
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
			if _, err := os.Stat(file); err != nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}
