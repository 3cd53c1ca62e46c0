package sched

import (
	"time"

	"waybill/actors/waybill"
)

// simulated is a sequence as its client and the actors around the Scheduler know
// it. Each is a client of its own; siblings share a prompt.
type simulated struct {
	id       SeqID
	group    uint64
	siblings []*simulated // of its request, itself included
	prompt   []int32
	hashes   []uint64
	limits   *Limits
	logits   bool
	bill     *waybill.Waybill

	out      []int32 // what the device has sampled
	checked  int     // output tokens up to which its whole context was checked
	inCore   bool    // its Admit has reached the core of this epoch
	first    bool    // the core has said that it was scheduled, likewise
	left     bool    // its Abort or Stopped has reached the core
	reported bool    // the core has reported its end

	// The Detokenizer's: a stop string is complete with output token stopAt (0:
	// never), and the first held tokens are no text that may be shown.
	stopAt, held, seen int
	// The writer's: when its last write is through, whether the client reads slowly,
	// has gone, and how many terminal events it got.
	wrote        time.Duration
	slow, closed bool
	terminal     int
	booked       bool
}

// at returns a stamp as a time of the day.
func (s *simulated) at(m waybill.Milestone) time.Duration { return time.Duration(s.bill.At(m) - 1) }

// stamp sets a milestone; like the process's clock, the day's begins above 0.
func (d *day) stamp(s *simulated, m waybill.Milestone, at time.Duration) {
	s.bill.Stamp(m, int64(at)+1)
	d.touched = append(d.touched, s)
}

// end decides how a sequence ended and reports whether this was the first to do so.
func (d *day) end(s *simulated, r waybill.Reason) bool {
	d.touched = append(d.touched, s)
	return s.bill.End(r, int64(d.now)+1)
}

// arrive brings a client and plans the next one: some 60 % of what the device can
// do, in bursts.
func (d *day) arrive(end time.Duration) {
	mean := 250 * time.Millisecond
	if int(d.now/(5*time.Minute))%4 == 3 {
		mean = 40 * time.Millisecond // more than the device can do
	}
	if d.now < end {
		d.after(time.Duration(d.rng.ExpFloat64()*float64(mean)), func() { d.arrive(end) })
	}
	k := d.rng.IntN(1000)
	siblings := 1
	if k >= 900 && k < 930 {
		siblings = 2 + d.rng.IntN(6)
	}
	first := d.request(k)
	for i := range siblings {
		s := *first
		s.bill = &waybill.Waybill{Stream: d.rng.IntN(3) > 0}
		first.siblings = append(first.siblings, &s)
		if siblings > 1 && i == 0 {
			d.counts.leaders++
		}
	}
	list := first.siblings
	d.stamp(list[0], waybill.Arrived, d.now)
	d.after(d.hop()+time.Duration(len(first.prompt))*50, func() { d.reserve(list) })
}

// request makes up what a client asks for.
func (d *day) request(k int) *simulated {
	s := &simulated{limits: &Limits{MaxTokens: 1 + d.rng.IntN(60), MinTokens: d.rng.IntN(3), Stop: []int32{7}}}
	n := 1 + d.rng.IntN(200)
	switch {
	case k < 2:
		n = 20_000 + d.rng.IntN(80_000)
		d.counts.long++
	case k < 60:
		n = 1000 + d.rng.IntN(4000)
	case k < 70:
		s.limits.MaxTokens, s.logits = 0, true // a text to be scored
	case k < 75:
		n = d.cfg.MaxModelLen // no room for output
		s.limits.MaxTokens = 0
		if d.rng.IntN(20) > 0 {
			n = 500
		}
	case k < 250:
		s.stopAt = 1 + d.rng.IntN(40) // perhaps after its last token
	}
	if s.limits.MaxTokens > 0 {
		s.held = d.rng.IntN(4) / 3 * d.rng.IntN(5)
	}
	s.slow = d.rng.IntN(10) == 0
	stem := d.stems[d.rng.IntN(len(d.stems))][:d.rng.IntN(min(n, 4000)+1)]
	s.prompt = append(s.prompt, stem...)
	for len(s.prompt) < n {
		s.prompt = append(s.prompt, int32(d.rng.IntN(50000)))
	}
	for i := 0; i+d.cfg.BlockSize <= n; i += d.cfg.BlockSize {
		s.hashes = append(s.hashes, HashBlock(s.prompt[i:i+d.cfg.BlockSize]))
	}
	return s
}

// reserve is the server's handler: a body has come, and takes its places or none.
func (d *day) reserve(list []*simulated) {
	for _, m := range []waybill.Milestone{waybill.Received, waybill.Decoded} {
		d.stamp(list[0], m, d.now)
	}
	if len(d.live)+len(list) > 200 {
		d.counts.refused++
		return
	}
	d.stamp(list[0], waybill.Reserved, d.now)
	for i, s := range list {
		d.next++
		s.id, s.siblings = d.next, list
		if len(list) > 1 {
			s.group = uint64(list[0].id)
		}
		if i > 0 {
			s.bill.CopyIntake(list[0].bill)
		}
		d.live[s.id] = s
		d.counts.admitted++
		// One in eight goes away: at once, in the queue, or in the middle. Of those
		// that others wait for one in three does, most of them while they do.
		leads := i == 0 && len(list) > 1
		switch {
		case leads && d.rng.IntN(3) == 0:
			d.after(time.Duration(d.rng.ExpFloat64()*10e6), func() { d.abort(s) })
		case !leads && d.rng.IntN(8) == 0:
			d.after(time.Duration(d.rng.ExpFloat64()*float64([]time.Duration{time.Microsecond, 50 * time.Millisecond, 2 * time.Second}[d.rng.IntN(3)])), func() { d.abort(s) })
		}
	}
	// Intake renders, tokenizes, and posts an Admit for each.
	d.after(d.hop(), func() {
		for _, s := range list {
			d.stamp(s, waybill.Rendered, d.now)
		}
		d.after(time.Duration(len(list[0].prompt))*200, func() {
			for _, s := range list {
				d.stamp(s, waybill.Tokenized, d.now)
				d.after(d.hop(), func() { d.admit(s) })
			}
		})
	})
}

// admit is the Scheduler's handler.
func (d *day) admit(s *simulated) {
	if d.live[s.id] == nil {
		return
	}
	if s.bill.Reason() != waybill.Running {
		d.released(s) // its end overtook its Admit: the place goes back here
		return
	}
	d.note("admit %d: %d tokens, at most %d more, group %d", s.id, len(s.prompt), s.limits.MaxTokens, s.group)
	d.stamp(s, waybill.Queued, d.now)
	s.inCore = true
	err := d.core.Admit(Sequence{ID: s.id, Group: s.group, Prompt: s.prompt, Hashes: s.hashes, Limits: s.limits, PromptLogits: s.logits, Params: s})
	if err != nil {
		d.fatal("admit: %v", err)
	}
	d.drained()
}

// abort is a client that goes away.
func (d *day) abort(s *simulated) {
	if s.closed || s.terminal > 0 {
		return
	}
	d.stamp(s, waybill.HungUp, d.now)
	d.close(s)
	if d.end(s, waybill.Abort) {
		d.tellAbort(s)
	}
}

func (d *day) tellAbort(s *simulated) {
	d.after(d.hop(), func() {
		d.note("abort %d", s.id)
		s.left = true
		d.core.Abort(s.id)
		d.drained()
	})
}

// close ends the response side of a client that is gone.
func (d *day) close(s *simulated) {
	s.closed = true
	d.after(d.hop(), func() { d.side(s, waybill.ResponseSide) })
}

// tokenOf is a sequence's share of a step.
type tokenOf struct {
	s      *simulated
	has    bool
	finish Finish
}

// detokenize is the Detokenizer: it reads tokens in order, so an earlier stop
// string wins over a later end.
func (d *day) detokenize(batch []tokenOf, at time.Duration) {
	for _, t := range batch {
		s := t.s
		if s.bill.Reason() != waybill.Running {
			continue
		}
		if t.has {
			s.seen++
		}
		matched := s.seen == s.stopAt && s.seen > s.limits.MinTokens
		reason := waybill.Running
		switch {
		case matched, t.finish == FinishStop:
			reason = waybill.Stop
		case t.finish == FinishLength:
			reason = waybill.Length
		}
		if reason != waybill.Running {
			d.end(s, reason)
			d.stamp(s, waybill.LastToken, at)
		} else if s.seen <= s.held {
			continue
		}
		first := s.bill.At(waybill.FirstText) == 0
		d.stamp(s, waybill.FirstText, d.now)
		if matched && t.finish == NotFinished {
			d.after(d.hop(), func() {
				d.note("stopped %d", s.id)
				s.left = true
				d.core.Stopped(s.id)
				d.drained()
			})
		}
		// What lies between the first and the last write carries no stamp.
		if last := reason != waybill.Running; first || last {
			d.write(s, first, last)
		}
	}
}

// write is a writer's system call; a slow client's takes long.
func (d *day) write(s *simulated, first, last bool) {
	took := d.hop()
	if s.slow {
		took += time.Duration(d.rng.ExpFloat64() * 500e6)
	}
	s.wrote = max(s.wrote, d.now+took)
	d.after(s.wrote-d.now, func() {
		if s.closed {
			return
		}
		if first {
			d.stamp(s, waybill.FirstByte, d.now)
		}
		if last {
			d.stamp(s, waybill.LastByte, d.now)
			d.terminal(s)
		}
	})
}

// fails ends a sequence with an error, and with it its request.
func (d *day) fails(s *simulated) {
	if d.end(s, waybill.Error) {
		d.cut(s)
	}
	for _, o := range s.siblings {
		if o != s && d.end(o, waybill.Abort) {
			d.cut(o)
			d.tellAbort(o)
		}
	}
}

// cut writes the end of a response that has no ordinary one.
func (d *day) cut(s *simulated) {
	s.wrote = max(s.wrote, d.now+d.hop())
	d.after(s.wrote-d.now, func() {
		if !s.closed {
			d.terminal(s)
		}
	})
}

// terminal is the one event that ends a client's answer.
func (d *day) terminal(s *simulated) {
	if s.terminal++; s.terminal > 1 {
		d.fatal("the client of sequence %d got %d terminal events", s.id, s.terminal)
	}
	d.side(s, waybill.ResponseSide)
}

// released gives the place back.
func (d *day) released(s *simulated) {
	delete(d.live, s.id)
	s.inCore = false
	d.stamp(s, waybill.Released, d.now)
	d.side(s, waybill.EngineSide)
}

// side ends one side of a waybill; the last one books it.
func (d *day) side(s *simulated, side int32) {
	if s.bill.Finish(side) {
		d.book(s)
	}
}

// book is the Ledger: the parts of every waybill add up.
func (d *day) book(s *simulated) {
	if s.booked {
		d.fatal("sequence %d was booked twice", s.id)
	}
	s.booked = true
	if !s.closed && s.terminal != 1 {
		d.fatal("the client of sequence %d got %d terminal events", s.id, s.terminal)
	}
	switch r := s.bill.Reason(); r {
	case waybill.Stop, waybill.Length:
		if r == waybill.Stop && s.seen == s.stopAt {
			d.counts.stopped++
		} else {
			d.counts.finished++
		}
		// A client that went away at the last moment misses the writes.
		for m := waybill.Arrived; m <= waybill.LastByte; m++ {
			if s.bill.At(m) == 0 && !(s.closed && (m == waybill.FirstByte || m == waybill.LastByte)) {
				d.fatal("sequence %d ended with %v but never passed %v", s.id, r, m)
			}
		}
	case waybill.Abort:
		d.counts.aborted++
	case waybill.Error:
		d.counts.failed++
	default:
		d.fatal("sequence %d was booked as %v", s.id, r)
	}
	split := s.bill.Split()
	sum := func(whole waybill.Part, parts ...waybill.Part) {
		if !split.Has(whole) {
			return
		}
		total := int64(0)
		for _, p := range parts {
			if split.Has(p) {
				total += split.Micros(p)
			}
		}
		if total != split.Micros(whole) {
			d.fatal("sequence %d: the parts of %v are %d µs, it is %d", s.id, whole, total, split.Micros(whole))
		}
	}
	sum(waybill.TTFT, waybill.Intake, waybill.Queue, waybill.Prefill, waybill.Egress)
	sum(waybill.E2E, waybill.Intake, waybill.Queue, waybill.Prefill, waybill.Decode, waybill.Tail)
	for _, p := range waybill.Parts() {
		if split.Has(p) && split.Micros(p) < 0 {
			d.fatal("sequence %d: %v takes %d µs", s.id, p, split.Micros(p))
		}
	}
}

// follows lists which milestone comes behind which. The first byte may leave
// before or after the last token is there: with one token it does after.
var follows = [...]struct{ later, earlier waybill.Milestone }{
	{waybill.Received, waybill.Arrived}, {waybill.Decoded, waybill.Received}, {waybill.Reserved, waybill.Decoded},
	{waybill.Rendered, waybill.Reserved}, {waybill.Tokenized, waybill.Rendered}, {waybill.Queued, waybill.Tokenized},
	{waybill.Scheduled, waybill.Queued}, {waybill.Launched, waybill.Scheduled}, {waybill.FirstToken, waybill.Launched},
	{waybill.FirstText, waybill.FirstToken}, {waybill.FirstByte, waybill.FirstText}, {waybill.LastToken, waybill.FirstToken},
	{waybill.LastByte, waybill.LastToken}, {waybill.LastByte, waybill.FirstByte},
}

// stamps checks the waybills that the event has touched: what is stamped has been
// preceded by all that comes before it, and nothing is stamped ahead of its time.
func (d *day) stamps() {
	for _, s := range d.touched {
		for _, f := range follows {
			later, earlier := s.bill.At(f.later), s.bill.At(f.earlier)
			if later != 0 && (earlier == 0 || later < earlier) {
				d.fatal("sequence %d: %v is stamped %d, %v %d", s.id, f.later, later, f.earlier, earlier)
			}
		}
		for m := waybill.Arrived; m < waybill.NumMilestones; m++ {
			if s.bill.At(m) > int64(d.now)+1 {
				d.fatal("sequence %d: %v is stamped %v, ahead of time", s.id, m, s.at(m))
			}
		}
	}
	clear(d.touched)
	d.touched = d.touched[:0]
}
