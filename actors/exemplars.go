package actors

import (
	"sort"
	"sync"

	"waybill/actors/waybill"
)

// record is what is kept of an ended sequence: its waybill, which nobody writes
// any more, and what a console may show beside it.
type record struct {
	bill    *waybill.Waybill
	split   waybill.Split
	failure string
	prompt  string // with --console-show-content
	output  string
}

// newRecord takes what is kept of s.
func newRecord(s *Sequence, split waybill.Split) *record {
	r := &record{bill: s.Bill, split: split, prompt: s.shownPrompt, output: string(s.shownOutput)}
	if f := s.failure.Load(); f != nil {
		r.failure = f.Message
	}
	return r
}

// slowness orders records: by time to first token, or to the end without one.
func (r *record) slowness() int64 {
	for _, p := range []waybill.Part{waybill.TTFT, waybill.E2E} {
		if r.split.Has(p) {
			return r.split.Micros(p)
		}
	}
	return 0
}

// exemplars keeps the last ended sequences and the slowest ones. The Ledger adds.
type exemplars struct {
	mu      sync.Mutex // held for an insertion or a copy of the lists
	recent  []*record  // a ring once full
	next    int
	slowest []*record // slowest first
}

// add keeps r.
func (x *exemplars) add(r *record) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.recent) < recentRequests {
		x.recent = append(x.recent, r)
	} else {
		x.recent[x.next] = r
		x.next = (x.next + 1) % recentRequests
	}
	// An hour-old exemplar of a cold start would hide what is slow today.
	now := r.bill.At(waybill.Ended)
	keep := x.slowest[:0]
	for _, s := range x.slowest {
		if now-s.bill.At(waybill.Ended) < int64(slowFor) {
			keep = append(keep, s)
		}
	}
	x.slowest = keep
	i := sort.Search(len(x.slowest), func(i int) bool { return x.slowest[i].slowness() < r.slowness() })
	if i == slowRequests {
		return
	}
	x.slowest = append(x.slowest, nil)
	copy(x.slowest[i+1:], x.slowest[i:])
	x.slowest[i] = r
	x.slowest = x.slowest[:min(len(x.slowest), slowRequests)]
}

// lists returns the last n sequences, newest first, and the slowest.
func (x *exemplars) lists(n int) (recent, slowest []*record) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range min(n, len(x.recent)) {
		recent = append(recent, x.recent[(x.next+len(x.recent)-1-i)%len(x.recent)])
	}
	return recent, append([]*record(nil), x.slowest...)
}

// find returns the newest record of a request id, or nil.
func (x *exemplars) find(rid string) *record {
	recent, slowest := x.lists(recentRequests)
	for _, r := range append(recent, slowest...) {
		if r.bill.RID == rid {
			return r
		}
	}
	return nil
}
