//go:build !linux

package cpu

import (
	"sync"
	"sync/atomic"
)

// gate is where workers park between steps.
type gate struct {
	state   atomic.Uint32
	mu      sync.Mutex
	changed sync.Cond
}

// set changes the state and wakes the workers unless it is gateShut.
func (g *gate) set(state uint32) {
	g.mu.Lock()
	g.changed.L = &g.mu
	g.state.Store(state)
	g.mu.Unlock()
	if state != gateShut {
		g.changed.Broadcast()
	}
}

// wait returns the state as soon as it is not gateShut.
func (g *gate) wait() uint32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changed.L = &g.mu
	for g.state.Load() == gateShut {
		g.changed.Wait()
	}
	return g.state.Load()
}
