//go:build !faults

package main

import "waybill/actors"

// plantFaults does nothing in this build: see the other one.
func plantFaults(*actors.Config) {}

// gpuFault is none in this build.
func gpuFault() func(what string) error { return nil }
