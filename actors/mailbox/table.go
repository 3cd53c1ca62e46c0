package mailbox

import (
	"reflect"
	"sort"
	"sync/atomic"
	"time"
)

// stats are an actor's counters. Those of the consumer are written by its
// goroutine alone; any goroutine may read them.
type stats struct {
	startedAt                                  int64
	posted, refused, dropped, handled, decided atomic.Int64
	panics, restarts                           atomic.Int64
	wait, hand, drain                          Hist
	current                                    atomic.Pointer[string]
	currentSince                               atomic.Int64
	idleSince                                  atomic.Int64
	names                                      map[reflect.Type]*string // consumer only: type names seen
	lastStack                                  []byte                   // written at a panic, read by the supervisor on the same goroutine
}

// drained marks that Drained is running.
type drained struct{}

var drainedMark = &drained{}

// begin notes that a handler starts on m at time t.
func (s *stats) begin(m any, t int64) {
	s.currentSince.Store(t)
	s.current.Store(s.name(m))
}

// name returns the type name of m without allocating after its first sight.
func (s *stats) name(m any) *string {
	key := reflect.TypeOf(m)
	if n := s.names[key]; n != nil {
		return n
	}
	if s.names == nil {
		s.names = map[reflect.Type]*string{}
	}
	n := key.String()
	s.names[key] = &n
	return &n
}

func (s *stats) end(from, to int64) {
	ns := to - from
	s.current.Store(nil)
	s.currentSince.Store(0)
	s.idleSince.Store(to)
	s.handled.Add(1)
	s.hand.record(ns)
}

func (s *stats) endDrained(from, to int64) {
	ns := to - from
	s.current.Store(nil)
	s.currentSince.Store(0)
	s.idleSince.Store(to)
	s.decided.Add(1)
	s.drain.record(ns)
}

func (s *stats) panicked() {
	s.panics.Add(1)
	s.current.Store(nil)
	s.currentSince.Store(0)
}

// Info is a snapshot of one live actor.
type Info struct {
	// Name is unique, Kind groups actors of one sort.
	Name, Kind string
	// Depth is the number of messages waiting.
	Depth int
	// Posted, Handled, Refused and Dropped count messages since the start:
	// taken in, handled, refused by a full or ended mailbox, handed to OnDrop.
	Posted, Handled, Refused, Dropped int64
	// Decided counts calls of Drained.
	Decided int64
	// Panics and Restarts count failures.
	Panics, Restarts int64
	// Current is the type of the message in hand, "" when idle; Busy how long.
	Current string
	Busy    time.Duration
	// Idle is the time since the last message was done with; 0 when busy.
	Idle time.Duration
	// Oldest is how long the oldest waiting message has been waiting.
	Oldest time.Duration
	// Age is the time since the start.
	Age time.Duration
	// Wait, Handle and Drain are the live histograms of mailbox wait, handler
	// time and decision time.
	Wait, Handle, Drain *Hist
}

// Table returns a snapshot of all live actors, sorted by name. Any goroutine.
func (s *System) Table() []Info {
	s.mu.Lock()
	refs := make([]*Ref, 0, len(s.boxes))
	for _, r := range s.boxes {
		refs = append(refs, r)
	}
	s.mu.Unlock()
	out := make([]Info, 0, len(refs))
	for _, r := range refs {
		out = append(out, r.Info())
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// Info returns a snapshot of the actor.
func (r *Ref) Info() Info {
	st := &r.stats
	now := r.system.now()
	i := Info{
		Name: r.opts.Name, Kind: r.opts.Kind, Depth: r.Depth(),
		Posted: st.posted.Load(), Handled: st.handled.Load(), Refused: st.refused.Load(),
		Dropped: st.dropped.Load(), Decided: st.decided.Load(),
		Panics: st.panics.Load(), Restarts: st.restarts.Load(),
		Age:  time.Duration(now - st.startedAt),
		Wait: &st.wait, Handle: &st.hand, Drain: &st.drain,
	}
	if since, cur := st.currentSince.Load(), st.current.Load(); since != 0 && cur != nil {
		i.Current, i.Busy = *cur, time.Duration(now-since)
	} else {
		i.Idle = time.Duration(now - max(st.idleSince.Load(), st.startedAt))
	}
	for _, q := range []*ring{r.user, r.lane} {
		if at := q.oldest(); at != 0 {
			i.Oldest = max(i.Oldest, time.Duration(now-at))
		}
	}
	return i
}
