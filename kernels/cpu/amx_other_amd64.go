//go:build amd64 && !linux

package cpu

// tileLevels returns none: only Linux is asked for the tile registers.
func tileLevels() []level { return nil }
