package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"waybill/cmd/ttft/exposition"
)

// Probe says how single requests are injected between decoding streams, to see
// how long a newcomer waits for its first step.
type Probe struct {
	Streams   int    // streams that decode all the time
	Count     int    // requests injected
	Idle      int    // requests sent to the idle server first
	InputLen  int    // prompt tokens of a probe; it asks for one token
	StreamLen int    // tokens that a stream asks for before it is started again
	DumpFile  string // stderr of a waybill with VT_TTFT_DUMP=1; empty: none
}

func (p *Probe) check() error {
	if p.Streams < 1 || p.Count < 1 || p.Idle < 1 || p.InputLen < 1 || p.StreamLen < 2 {
		return fmt.Errorf("bench: probe: %d streams of %d tokens, %d probes of %d tokens, %d idle: must be positive",
			p.Streams, p.StreamLen, p.Count, p.InputLen, p.Idle)
	}
	return nil
}

// probeRun is what was seen.
type probeRun struct {
	idle, probes []*Record            // in the order of sending
	tag          string               // request ids are tag-0, tag-1, …
	stamps       []time.Time          // arrivals of the streams' events
	gaps         []time.Duration      // between events of one stream while probes were sent: its ITL
	restarts     int                  // of streams that reached their length: newcomers too
	streamErr    string               // of a stream that failed: then fewer streams decoded
	before       *exposition.Snapshot // nil: no /metrics
	after        *exposition.Snapshot
	dumpFrom     int64 // where the dump file ended before
}

// streamers keep the streams decoding. Each stream has a goroutine that ends with
// the context.
type streamers struct {
	mu       sync.Mutex
	stamps   []time.Time // arrivals of all events with choices
	restarts int
	err      string // of the last stream that failed
	events   []int  // by stream

	last []time.Time // arrival of each stream's last event; zero: a new stream
	gaps []time.Duration
}

// probe measures and reports.
func (o *Options) probe(ctx context.Context, c *client) error {
	if err := o.Probe.check(); err != nil {
		return err
	}
	w, err := newWriter(ctx, o, c)
	if err != nil {
		return err
	}
	r, err := o.inject(ctx, c, w)
	if err != nil {
		return err
	}
	rep, err := o.analyse(r)
	if err != nil {
		return err
	}
	rep.print(o.out())
	if o.SaveResult || o.AppendResult {
		now := time.Now()
		file := o.resultFile(o.Probe.Streams, 1, now)
		if err := o.save(file, rep.result(o, now)); err != nil {
			return err
		}
		fmt.Fprintln(o.out(), "saved", file)
	}
	if rep.Failed > 0 {
		return ErrFailedRequests
	}
	return nil
}

// probeBodies returns n requests for one token with prompts that differ, so that
// no prefix cache spares the work.
func (o *Options) probeBodies(ctx context.Context, w *writer, rng *rand.Rand, n int) ([][]byte, error) {
	out := make([][]byte, n)
	for i := range out {
		text, err := w.text(ctx, rng, o.Probe.InputLen)
		if err != nil {
			return nil, err
		}
		if out[i], err = o.payload(prompt{text: text, output: 1}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// inject runs the idle phase, then the streams with the probes among them.
func (o *Options) inject(ctx context.Context, c *client, w *writer) (*probeRun, error) {
	p := o.Probe
	rng := rand.New(rand.NewPCG(o.Seed, 0x9056))
	idleBodies, err := o.probeBodies(ctx, w, rng, p.Idle)
	if err != nil {
		return nil, err
	}
	bodies, err := o.probeBodies(ctx, w, rng, p.Count)
	if err != nil {
		return nil, err
	}
	r := &probeRun{tag: fmt.Sprintf("probe-%08x", rand.Uint32())}
	tick := o.bar(p.Idle + p.Count)
	// One after the other with pauses: the server is idle whenever one arrives.
	pause := func() { time.Sleep(time.Duration(5+rng.IntN(10)) * time.Millisecond) }
	for i, b := range idleBodies {
		rec := &Record{Due: time.Now()}
		c.stream(ctx, o.endpoint(), fmt.Sprintf("%s-idle-%d", r.tag, i), b, rec)
		if rec.Err != "" {
			return nil, fmt.Errorf("bench: probe: the idle server failed: %s", rec.Err)
		}
		r.idle = append(r.idle, rec)
		if tick != nil {
			tick()
		}
		pause()
	}
	streamCtx, stop := context.WithCancel(ctx)
	defer stop()
	s, wait, err := o.decode(streamCtx, c, w, rng)
	if err != nil {
		return nil, err
	}
	step, err := s.warm(ctx)
	if err != nil {
		return nil, err
	}
	if r.dumpFrom, err = size(p.DumpFile); err != nil {
		return nil, err
	}
	r.before = o.scrape(ctx)
	s.takeGaps() // those before the probes
	// Far enough apart that one probe is done before the next; the random part is
	// four steps, so that the phase of the step is uniform.
	var idle series
	for _, rec := range r.idle {
		idle = append(idle, ms(rec.TTFT()))
	}
	apart := 3*step + 2*time.Duration(idle.percentile(50)*float64(time.Millisecond))
	due := make([]time.Duration, p.Count)
	at := apart
	for i := range due {
		due[i] = at + time.Duration(rng.Float64()*4*float64(step))
		at += apart + 4*step
	}
	r.probes = o.load(ctx, c, bodies, due, 0, r.tag, tick).records
	r.gaps = s.takeGaps()
	const settle = 200 * time.Millisecond // waybills are booked a moment after the last byte
	time.Sleep(settle)
	r.after = o.scrape(ctx)
	stop()
	wait()
	r.stamps, r.restarts, r.streamErr = s.stamps, s.restarts, s.err
	return r, nil
}

// decode starts the streams. They run until the context ends; wait returns then.
func (o *Options) decode(ctx context.Context, c *client, w *writer, rng *rand.Rand) (s *streamers, wait func(), err error) {
	p := o.Probe
	s = &streamers{events: make([]int, p.Streams), last: make([]time.Time, p.Streams)}
	long := *o // a natural end would leave a gap in the load
	long.IgnoreEOS = true
	var wg sync.WaitGroup
	for i := range p.Streams {
		text, err := w.text(ctx, rng, 16)
		if err != nil {
			return nil, nil, err
		}
		body, err := long.payload(prompt{text: text, output: p.StreamLen})
		if err != nil {
			return nil, nil, err
		}
		wg.Go(func() {
			for ctx.Err() == nil {
				rec := &Record{Due: time.Now(), onEvent: func(at time.Time) { s.saw(i, at) }}
				c.stream(ctx, o.endpoint(), "", body, rec)
				s.restarting(i)
				if ctx.Err() == nil && !s.ended(rec.Err) {
					return
				}
			}
		})
	}
	return s, wg.Wait, nil
}

// saw books an event of stream i.
func (s *streamers) saw(i int, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stamps = append(s.stamps, at)
	s.events[i]++
	if !s.last[i].IsZero() {
		s.gaps = append(s.gaps, at.Sub(s.last[i]))
	}
	s.last[i] = at
}

// restarting says that stream i's next event follows none.
func (s *streamers) restarting(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last[i] = time.Time{}
}

// takeGaps returns the gaps since the last call.
func (s *streamers) takeGaps() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	gaps := s.gaps
	s.gaps = nil
	return gaps
}

// ended books the end of a stream and reports whether to start it again.
func (s *streamers) ended(err string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != "" {
		s.err = err
		return false
	}
	s.restarts++
	return true
}

// warm waits until every stream decodes and returns the length of a step.
func (s *streamers) warm(ctx context.Context) (time.Duration, error) {
	// 20 steps give a median that one slow step does not move. A server that takes
	// fewer streams than asked for lets one wait for ever.
	const enough, patience = 20, 2 * time.Minute
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		s.mu.Lock()
		least := s.events[0]
		for _, n := range s.events {
			least = min(least, n)
		}
		stamps, failed := append([]time.Time(nil), s.stamps...), s.err
		s.mu.Unlock()
		switch {
		case failed != "":
			return 0, fmt.Errorf("bench: probe: a stream failed: %s", failed)
		case least >= enough:
			return median(lengths(stepEnds(stamps, len(s.events)))), nil
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case time.Now().After(deadline):
			return 0, errors.New("bench: probe: the streams do not all decode: does the server take that many?")
		}
	}
}

// size returns the length of a file, 0 for no file.
func size(file string) (int64, error) {
	if file == "" {
		return 0, nil
	}
	i, err := os.Stat(file)
	if err != nil {
		return 0, fmt.Errorf("bench: probe: dump file: %w", err)
	}
	return i.Size(), nil
}
