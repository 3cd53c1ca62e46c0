//go:build !linux

package cpu

// adviseHuge does nothing: the system chooses page sizes itself.
func adviseHuge([]byte) {}

// populate makes the system back all of b.
func populate(b []byte) error {
	touch(b)
	return nil
}
