package model

import (
	"testing"

	"waybill/kernels/cpu"
)

// TestPackedWeightsStayNearTheFile holds what the default model takes in memory
// against its file's tensors, and those against the file.
func TestPackedWeightsStayNearTheFile(t *testing.T) {
	src, err := Open(smolPath(t))
	if err != nil {
		t.Fatal(err)
	}
	backend, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	m, err := Load(src, backend, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const smolBytes = 98_000_000 // of the file; its vocabulary is another 2 %
	if f := m.FileBytes(); f < smolBytes*9/10 || f > smolBytes*11/10 {
		t.Errorf("the file's tensors have %d bytes, want some %d", f, smolBytes)
	}
	if ratio := float64(m.WeightBytes()) / float64(m.FileBytes()); ratio < 0.9 || ratio > 1.15 {
		t.Errorf("%d bytes packed are %.3f of the %d of the file, want 0.9 to 1.15", m.WeightBytes(), ratio, m.FileBytes())
	}
}
