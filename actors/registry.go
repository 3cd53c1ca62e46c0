package actors

import (
	"sort"
	"sync"
)

// registry knows every sequence from Submit until its waybill is complete. It
// lies outside the actors, so that the Supervisor can answer and re-admit what
// a failed actor held.
type registry struct {
	mu   sync.Mutex
	seqs map[*Sequence]struct{}
}

func (r *registry) add(seqs []*Sequence) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range seqs {
		r.seqs[s] = struct{}{}
	}
}

func (r *registry) remove(s *Sequence) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.seqs, s)
}

// snapshot returns all sequences known now, oldest first.
func (r *registry) snapshot() []*Sequence {
	r.mu.Lock()
	out := make([]*Sequence, 0, len(r.seqs))
	for s := range r.seqs {
		out = append(out, s)
	}
	r.mu.Unlock()
	sort.Slice(out, func(i, j int) bool { return out[i].ID < out[j].ID })
	return out
}

// count returns the number of sequences known.
func (r *registry) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seqs)
}
