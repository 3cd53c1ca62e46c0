package mailbox

import "sync/atomic"

// cacheLine keeps the producers' and the consumer's counters apart, in bytes.
const cacheLine = 64

// slot is one place of a ring. seq says whose turn it is: equal to the position
// when free for a producer, one more when filled.
type slot struct {
	seq atomic.Uint64
	at  atomic.Int64 // when the message was posted, in nanoseconds of the system's clock
	msg any
}

// ring is a bounded queue for many producers and one consumer (the known
// bounded MPMC queue with a sequence number per slot, its consumer side reduced to
// one goroutine).
// It never allocates after it was made and never blocks.
type ring struct {
	slots []slot
	mask  uint64
	_     [cacheLine]byte
	tail  atomic.Uint64 // next position to fill
	_     [cacheLine]byte
	head  atomic.Uint64 // next position to take; written by the consumer only
}

// newRing returns a ring of at least size places, rounded up to a power of two.
func newRing(size int) *ring {
	n := 1
	for n < size {
		n *= 2
	}
	r := &ring{slots: make([]slot, n), mask: uint64(n - 1)}
	for i := range r.slots {
		r.slots[i].seq.Store(uint64(i))
	}
	return r
}

// push appends m and reports false if the ring is full. Any goroutine.
func (r *ring) push(m any, at int64) bool {
	for {
		pos := r.tail.Load()
		s := &r.slots[pos&r.mask]
		switch d := int64(s.seq.Load() - pos); {
		case d == 0:
			if r.tail.CompareAndSwap(pos, pos+1) {
				s.msg = m
				s.at.Store(at)
				s.seq.Store(pos + 1)
				return true
			}
		case d < 0:
			return false
		}
	}
}

// pop takes the oldest message. Consumer only.
func (r *ring) pop() (m any, at int64, ok bool) {
	pos := r.head.Load()
	s := &r.slots[pos&r.mask]
	if s.seq.Load() != pos+1 {
		return nil, 0, false
	}
	m, at = s.msg, s.at.Load()
	s.msg = nil
	s.seq.Store(pos + uint64(len(r.slots)))
	r.head.Store(pos + 1)
	return m, at, true
}

// ready reports whether pop would find a message. Consumer only.
func (r *ring) ready() bool {
	pos := r.head.Load()
	return r.slots[pos&r.mask].seq.Load() == pos+1
}

// oldest returns when the message that pop would return was posted, or 0. Any
// goroutine; the answer may be stale.
func (r *ring) oldest() int64 {
	pos := r.head.Load()
	s := &r.slots[pos&r.mask]
	if s.seq.Load() != pos+1 {
		return 0
	}
	return s.at.Load()
}

// depth returns the number of messages waiting. Any goroutine;
// the answer may be stale.
func (r *ring) depth() int {
	d := int64(r.tail.Load() - r.head.Load())
	return int(max(d, 0))
}
