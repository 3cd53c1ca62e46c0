//go:build cuda

package telemetry

import (
	"strings"
	"testing"
)

// With a driver every device has a name and memory; without one the error says so, and the process lives.
func TestDevicesAreReadOrTheErrorSaysWhyNot(t *testing.T) {
	read, err := Open()
	if err != nil {
		if !strings.Contains(err.Error(), "NVML") {
			t.Errorf("error %q does not name the library", err)
		}
		t.Logf("no driver here: %v", err)
		return
	}
	devices, err := read()
	if err != nil || len(devices) == 0 {
		t.Fatalf("%d devices, %v", len(devices), err)
	}
	for _, d := range devices {
		t.Logf("%+v", d)
		if d.Name == "" || !strings.HasPrefix(d.UUID, "GPU-") || d.MemoryTotal <= 0 || d.MemoryUsed < 0 || d.SMClock <= 0 {
			t.Errorf("device %+v lacks what every GPU reports", d)
		}
	}
}

func TestThrottleReasonsAreNamed(t *testing.T) {
	for bits, want := range map[uint64]string{0: "", 1: "", 4: "power limit", 1 | 64 | 4: "power limit, temperature (hardware)", 1 << 40: "unknown (0x10000000000)"} {
		if got := reasons(bits); got != want {
			t.Errorf("bits %#x: %q, want %q", bits, got, want)
		}
	}
}
