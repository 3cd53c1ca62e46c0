package actors

import (
	"fmt"
	"sync/atomic"
	"time"

	"waybill/actors/waybill"
)

// ErrOverloaded says which bound a request would have exceeded.
type ErrOverloaded struct {
	// Bound is the flag that sets it.
	Bound string
	// Limit is its value, Wanted what the request asked for.
	Limit, Used, Wanted int64
	// RetryAfter is when a place for it may be free, by the measured rate at which
	// places come back.
	RetryAfter time.Duration
}

// Error describes the refusal.
func (e *ErrOverloaded) Error() string {
	return fmt.Sprintf("the server is full: %s is %d, in use %d, wanted %d", e.Bound, e.Limit, e.Used, e.Wanted)
}

// admission counts the places in use. A place is a sequence that was accepted
// and whose entry is not removed yet.
type admission struct {
	maxSeqs, maxTokens int64
	seqs, tokens       atomic.Int64
	rate               serviceRate
}

// Places is what a request holds. Each is given back with its sequence.
type Places struct{ n, tokens int64 }

// reserve takes n places and tokens queued tokens with one atomic each, or
// refuses. Any goroutine.
func (a *admission) reserve(n, tokens int64) (*Places, error) {
	for {
		used := a.seqs.Load()
		if used+n > a.maxSeqs {
			return nil, a.overloaded("--max-num-queued-reqs", a.maxSeqs, used, n, n)
		}
		if a.seqs.CompareAndSwap(used, used+n) {
			a.rate.taken(used, waybill.Now())
			break
		}
	}
	if a.maxTokens > 0 {
		if used := a.tokens.Add(tokens) - tokens; used >= a.maxTokens {
			a.tokens.Add(-tokens)
			a.seqs.Add(-n)
			return nil, a.overloaded("--max-num-queued-tokens", a.maxTokens, used, tokens, n)
		}
	} else {
		a.tokens.Add(tokens)
	}
	return &Places{n, tokens}, nil
}

// overloaded makes the refusal of a request for n places.
func (a *admission) overloaded(bound string, limit, used, wanted, n int64) *ErrOverloaded {
	return &ErrOverloaded{bound, limit, used, wanted, a.rate.refused(n, waybill.Now())}
}

// share gives each sequence its place and its share of the queued tokens.
func (p *Places) share(seqs []*Sequence) {
	rest := p.tokens
	for i, s := range seqs {
		t := rest / int64(len(seqs)-i)
		rest -= t
		s.place.Store(true)
		s.tokens.Store(t)
	}
}

// counted replaces a sequence's estimate of queued tokens by their number.
func (a *admission) counted(s *Sequence, tokens int64) {
	a.tokens.Add(tokens - s.tokens.Swap(tokens))
}

// prefilled gives back the queued tokens of a sequence that has its first token.
func (a *admission) prefilled(s *Sequence) { a.tokens.Add(-s.tokens.Swap(0)) }

// giveBack returns a sequence's place, once, and reports whether this call did.
func (a *admission) giveBack(s *Sequence) bool {
	if !s.place.CompareAndSwap(true, false) {
		return false
	}
	a.prefilled(s)
	a.rate.gaveBack(waybill.Now())
	a.seqs.Add(-1)
	return true
}
