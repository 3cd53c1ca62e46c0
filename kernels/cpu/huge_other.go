//go:build !linux

package cpu

// adviseHuge does nothing: the system chooses page sizes itself.
func adviseHuge([]byte) {}
