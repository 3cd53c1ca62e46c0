// Package telemetry reads NVIDIA's management library: utilisation, memory, power, clocks, temperature, throttle
// reasons, ECC errors and processes of the GPUs. It needs a binary with CUDA in it.
package telemetry

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"waybill/kernels"
)

// ErrNotBuilt is what Open returns in a binary without CUDA.
var ErrNotBuilt = errors.New("this binary has no CUDA in it")

const (
	// maxAge is how old a reading may be: the driver itself averages over 0.2 to 1 s, and a reading takes some
	// milliseconds of a core.
	maxAge = time.Second
	// patience bounds the wait for a reading; a driver that hangs must not hold up a scrape.
	patience = 250 * time.Millisecond
)

// poll shares readings between callers and survives a driver that hangs. Its methods may be called from any
// goroutine.
type poll struct {
	read func() ([]kernels.GPUInfo, error)
	now  func() time.Time

	mu      sync.Mutex
	devices []kernels.GPUInfo
	err     error
	at      time.Time     // of devices and err
	started time.Time     // of the reading that runs
	running chan struct{} // closed at its end; nil: none runs
}

// get returns a reading not older than maxAge, or an error that says why there is none.
func (p *poll) get() ([]kernels.GPUInfo, error) {
	p.mu.Lock()
	if p.running == nil && p.now().Sub(p.at) < maxAge {
		defer p.mu.Unlock()
		return p.devices, p.err
	}
	if p.running == nil {
		p.running, p.started = make(chan struct{}), p.now()
		go p.run(p.running)
	}
	running := p.running
	p.mu.Unlock()

	wait := time.NewTimer(patience)
	defer wait.Stop()
	select {
	case <-running:
	case <-wait.C:
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.running == running {
			return nil, fmt.Errorf("the driver's management library has not answered for %.1f s", p.now().Sub(p.started).Seconds())
		}
		return p.devices, p.err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.devices, p.err
}

// run does one reading. It ends when the driver answers; until then no other one is started.
func (p *poll) run(done chan struct{}) {
	devices, err := p.read()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.devices, p.err, p.at, p.running = devices, err, p.now(), nil
	close(done)
}
