package cpu

import (
	"math"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/prometheus/procfs"
)

// available returns how many bytes the system can still hand out to this process without
// stopping one: what it estimates, or what is left of the control group's limit if that is
// less. ok is false if neither is known.
func available() (n int64, ok bool) {
	n = math.MaxInt64
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, false
	}
	if m, err := fs.Meminfo(); err == nil && m.MemAvailableBytes != nil {
		n = int64(*m.MemAvailableBytes)
	}
	if limit, err := memlimit.FromCgroup(); err == nil && limit < math.MaxInt64 {
		if p, err := fs.Self(); err == nil {
			if st, err := p.Stat(); err == nil {
				n = min(n, int64(limit)-int64(st.ResidentMemory()))
			}
		}
	}
	return n, n < math.MaxInt64
}
