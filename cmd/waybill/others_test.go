package main

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// judge holds the black-box tests' times against their bounds: `make blackbox`. A
// test that runs beside others, on a machine that may be somebody else's too, can
// only judge counts.
var judge = flag.Bool("judge", false, "judge times of the black-box tests")

// maxOthers is the share of the machine that other programs may take before times
// are not judged: a tenth of two cores delays a step by about as much.
const maxOthers = 0.10

// machine is what was computed up to a moment.
type machine struct {
	at    time.Time
	all   time.Duration // by everybody
	ours  time.Duration // by this test and its server
	known bool
}

// load reads what has been computed so far.
func (p *process) load() (m machine) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return m
	}
	line, _, _ := strings.Cut(string(b), "\n")
	for i, f := range strings.Fields(line)[1:] {
		if n, err := strconv.Atoi(f); err == nil && i != 3 && i != 4 && i < 8 { // neither idle nor waiting
			m.all += time.Duration(n) * time.Second / 100
		}
	}
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return m
	}
	m.ours = time.Duration(u.Utime.Nano()+u.Stime.Nano()) + p.cpuTime()
	m.at, m.known = time.Now(), true
	return m
}

// disturbed reports whether other programs took so much of the machine since m that
// times say nothing: as when the packages of this repository are tested side by
// side. `make blackbox` runs these tests alone, and judges.
func (p *process) disturbed(t testing.TB, m machine) bool {
	if !*judge {
		return true
	}
	now := p.load()
	if !m.known || !now.known {
		return false
	}
	share := float64(now.all-m.all-(now.ours-m.ours)) / float64(now.at.Sub(m.at)) / float64(runtime.NumCPU())
	if share > maxOthers {
		t.Logf("other programs took %.0f %% of the machine: times are not judged", 100*share)
	}
	return share > maxOthers
}
