//go:build faults

package main

import (
	"os"
	"strconv"
	"time"

	"waybill/actors"
	"waybill/kernels/cuda"
)

// gpuFault makes the step whose number WAYBILL_TEST_STRAY holds read where the GPU has
// no memory.
func gpuFault() func(what string) error {
	at, _ := strconv.Atoi(os.Getenv("WAYBILL_TEST_STRAY"))
	steps := 0
	return func(what string) error {
		if what != "step" {
			return nil
		}
		if steps++; steps == at {
			return cuda.ErrStray
		}
		return nil
	}
}

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
