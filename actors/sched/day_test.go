package sched

import (
	"container/heap"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

var (
	dayHours = flag.Float64("hours", 0.5, "simulated hours of mixed load; make simulate runs 24")
	daySeed  = flag.Uint64("seed", 1, "seed of the simulated day: the same seed, the same day")
)

// day simulates a server's hours in virtual time: clients that come, wait, give up
// and misbehave, a device whose steps take time, messages that take time, failures of
// rows and of the whole pipeline. The device has a memory of blocks, so that whoever
// reads another's block is found out. All is decided by one seed.
type day struct {
	t    *testing.T
	cfg  Config
	seed uint64
	rng  *rand.Rand
	core *Core
	log  [64]string
	logN int

	now    time.Duration
	queue  events
	order  uint64
	epoch  int // of the pipeline: messages of an earlier one are dropped
	events int

	memory  [][]int32 // what each block holds
	slot    *Plan
	running *Plan
	keep    []bool
	step    StepID
	results []Result
	begun   time.Duration
	lane    time.Duration // when the device's last news arrives

	next    SeqID
	live    map[SeqID]*simulated // those with a place
	stems   [][]int32
	counts  struct{ admitted, finished, aborted, failed, rebuilds, steps, preempted, long int }
	longest time.Duration // wait of a short prompt
}

// simulated is a sequence as its client knows it.
type simulated struct {
	id      SeqID
	group   uint64
	prompt  []int32
	hashes  []uint64
	limits  *Limits
	logits  bool
	out     []int32
	gone    bool // aborted
	ended   bool // its one terminal event
	known   bool // its Admit has reached the core
	checked int  // output tokens up to which its whole context was checked
	// In the order in which they must come.
	arrived, queued, scheduled, first, last time.Duration
}

// event is something that happens at a time.
type event struct {
	at    time.Duration
	order uint64
	do    func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

// after schedules do; of an epoch that has ended by then it is dropped.
func (d *day) after(delay time.Duration, do func()) {
	d.order++
	heap.Push(&d.queue, event{d.now + delay, d.order, do})
}

func (d *day) ofEpoch(do func()) func() {
	epoch := d.epoch
	return func() {
		if epoch == d.epoch {
			do()
		}
	}
}

func (d *day) note(f string, a ...any) {
	d.log[d.logN%len(d.log)] = fmt.Sprintf("%12v ", d.now) + fmt.Sprintf(f, a...)
	d.logN++
}

func (d *day) fatal(f string, a ...any) {
	d.t.Helper()
	for i := max(0, d.logN-len(d.log)); i < d.logN; i++ {
		d.t.Log(d.log[i%len(d.log)])
	}
	d.t.Fatalf("at %v, seed %d (replay: go test ./actors/sched -run Day -seed %d -hours %g): %s", d.now, d.seed, d.seed, *dayHours, fmt.Sprintf(f, a...))
}

// hop is the time that a message takes.
func (d *day) hop() time.Duration { return time.Duration(d.rng.ExpFloat64() * 30e3) }

// post sends the device's news: they arrive in the order in which they were sent.
func (d *day) post(do func()) {
	d.lane = max(d.lane, d.now+d.hop())
	d.after(d.lane-d.now, d.ofEpoch(do))
}

func newDay(t *testing.T, seed uint64, cfg Config) *day {
	d := &day{t: t, cfg: cfg, seed: seed, rng: rand.New(rand.NewPCG(seed, 24)), live: map[SeqID]*simulated{}}
	for range 4 {
		stem := make([]int32, 4000)
		for i := range stem {
			stem[i] = int32(d.rng.IntN(50000))
		}
		d.stems = append(d.stems, stem)
	}
	d.memory = make([][]int32, cfg.NumBlocks)
	d.pipeline()
	return d
}

// pipeline starts Scheduler and device anew, as a rebuild does.
func (d *day) pipeline() {
	d.epoch++
	d.cfg.Epoch = uint64(d.epoch)
	c, err := New(d.cfg)
	if err != nil {
		d.t.Fatal(err)
	}
	d.core, d.slot, d.running, d.step, d.results = c, nil, nil, 0, nil
	for i := range d.memory {
		d.memory[i] = make([]int32, d.cfg.BlockSize)
	}
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
	if len(d.live) > 200 {
		return // refused: no place
	}
	s := &simulated{limits: &Limits{MaxTokens: 1 + d.rng.IntN(60), MinTokens: d.rng.IntN(3), Stop: []int32{7}}}
	n := 1 + d.rng.IntN(200)
	k := d.rng.IntN(1000)
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
	}
	stem := d.stems[d.rng.IntN(len(d.stems))][:d.rng.IntN(min(n, 4000)+1)]
	s.prompt = append(s.prompt, stem...)
	for len(s.prompt) < n {
		s.prompt = append(s.prompt, int32(d.rng.IntN(50000)))
	}
	for i := 0; i+d.cfg.BlockSize <= n; i += d.cfg.BlockSize {
		s.hashes = append(s.hashes, HashBlock(s.prompt[i:i+d.cfg.BlockSize]))
	}
	siblings := 1
	if k >= 900 && k < 930 {
		siblings = 2 + d.rng.IntN(6)
	}
	leader := uint64(0)
	for range siblings {
		d.next++
		o := *s
		o.id, o.arrived = d.next, d.now
		if siblings > 1 {
			if leader == 0 {
				leader = uint64(o.id)
			}
			o.group = leader
		}
		d.live[o.id] = &o
		d.counts.admitted++
		q := &o
		d.after(d.hop()+time.Duration(n)*200, func() { d.admit(q) })
		// One in eight goes away: at once, in the queue, or in the middle.
		if d.rng.IntN(8) == 0 {
			d.after(time.Duration(d.rng.ExpFloat64()*float64([]time.Duration{time.Microsecond, 50 * time.Millisecond, 2 * time.Second}[d.rng.IntN(3)])), func() { d.abort(q) })
		}
	}
}

// admit is the Scheduler's handler.
func (d *day) admit(s *simulated) {
	if d.live[s.id] == nil {
		return
	}
	if s.gone {
		delete(d.live, s.id) // it overtook its Admit: the place goes back here
		return
	}
	d.note("admit %d: %d tokens, at most %d more, group %d", s.id, len(s.prompt), s.limits.MaxTokens, s.group)
	if s.queued == 0 {
		s.queued = d.now
	}
	s.known = true
	err := d.core.Admit(Sequence{ID: s.id, Group: s.group, Prompt: s.prompt, Hashes: s.hashes, Limits: s.limits, PromptLogits: s.logits, Params: s})
	if err != nil {
		d.fatal("admit: %v", err)
	}
	d.drained()
}

// abort is a client that goes away.
func (d *day) abort(s *simulated) {
	if s.ended || s.gone || d.live[s.id] == nil {
		return
	}
	s.gone = true
	d.counts.aborted++
	d.after(d.hop(), func() {
		d.note("abort %d", s.id)
		d.core.Abort(s.id)
		d.drained()
	})
}

// drained is the Scheduler's decision once no message waits.
func (d *day) drained() {
	d.release()
	for range 3 {
		plan := d.core.Next()
		old := d.slot
		if d.core.Offered() != nil && old == nil {
			d.core.Discard(plan)
			return // taken: the news is on its way
		}
		d.slot = plan
		d.core.Publish(plan)
		if plan != nil {
			d.check(plan)
			if d.running == nil {
				d.after(d.hop(), d.ofEpoch(d.wake))
			}
			break
		}
		if d.release() == 0 {
			break
		}
	}
	d.release()
	if d.events++; d.events%64 == 0 {
		d.invariants()
	}
}

// release gives places back.
func (d *day) release() int {
	gone := d.core.Released()
	for _, id := range gone {
		s := d.live[id]
		if s == nil {
			d.fatal("sequence %d was released twice", id)
		}
		if !s.ended && !s.gone {
			d.fatal("sequence %d was released but has not ended", id)
		}
		delete(d.live, id)
	}
	return len(gone)
}

// wake starts the device from rest.
func (d *day) wake() {
	if d.running != nil || d.slot == nil {
		return
	}
	bound, void := d.bind()
	step := d.step
	d.post(func() { d.news(step, bound, void) })
}

// bind takes what is on offer and begins the step.
func (d *day) bind() (bound, void uint64) {
	p := d.slot
	if d.slot = nil; p == nil {
		return 0, 0
	}
	if p.After != d.step {
		return 0, p.Version
	}
	keep, kept := p.Bind(d.results, nil)
	if kept == 0 {
		return 0, p.Version
	}
	d.running, d.keep, d.begun = p, keep, d.now
	d.step++
	d.counts.steps++
	// 2 ms a step, 60 µs a token, 8 ns a pair; a decode row reads its context alone.
	took := 2 * time.Millisecond
	for i := range p.Rows {
		if r := &p.Rows[i]; keep[i] {
			took += time.Duration(r.Len)*60*time.Microsecond + time.Duration(r.Len*(r.Start+r.Len/2))*8
		}
	}
	took += time.Duration(d.rng.ExpFloat64() * float64(took) / 30)
	d.after(took, d.ofEpoch(d.finish))
	return p.Version, 0
}

// finish ends the running step: the device's memory is written and read.
func (d *day) finish() {
	p := d.running
	elapsed := d.now - d.begun
	res := make([]Result, len(p.Rows))
	fail := d.rng.IntN(20000) == 0
	// Writes first: no row may read what another writes in the same step.
	for i := range p.Rows {
		if r := &p.Rows[i]; d.keep[i] {
			s := r.Params.(*simulated)
			for pos := r.Start; pos < r.Start+r.Len; pos++ {
				d.memory[r.Blocks[pos/d.cfg.BlockSize]][pos%d.cfg.BlockSize] = d.tokenOf(s, pos)
			}
		}
	}
	for i := range p.Rows {
		r := &p.Rows[i]
		if !d.keep[i] {
			res[i].Dropped = true
			continue
		}
		s := r.Params.(*simulated)
		d.readBack(s, r)
		if fail && d.rng.IntN(len(p.Rows)) == 0 {
			res[i].Failed = true
			continue
		}
		if r.Sample {
			if r.Generated != len(s.out) || r.Start+r.Len != len(s.prompt)+len(s.out) {
				d.fatal("sequence %d: row at %d+%d with %d generated; it has %d and %d tokens", s.id, r.Start, r.Len, r.Generated, len(s.prompt), len(s.out))
			}
			res[i].Token = int32((uint64(s.id)*31 + uint64(len(s.out))*17) % 600)
			s.out = append(s.out, res[i].Token)
		}
	}
	d.running, d.results = nil, res
	step := d.step
	if d.rng.IntN(40000) == 0 {
		d.rebuild()
		return
	}
	bound, void := d.bind()
	d.post(func() { d.done(p, step, res, elapsed, bound, void) })
}

// tokenOf returns the token at a position of a sequence.
func (d *day) tokenOf(s *simulated, pos int) int32 {
	if pos < len(s.prompt) {
		return s.prompt[pos]
	}
	return s.out[pos-len(s.prompt)]
}

// readBack reads a row's context through its block table: now and then all of it,
// else the end.
func (d *day) readBack(s *simulated, r *Row) {
	from := max(0, r.Start-2*d.cfg.BlockSize)
	if r.Start+r.Len == len(s.prompt) || len(s.out) >= s.checked+32 {
		from, s.checked = 0, len(s.out)
	}
	for pos := from; pos < r.Start+r.Len; pos++ {
		if got, want := d.memory[r.Blocks[pos/d.cfg.BlockSize]][pos%d.cfg.BlockSize], d.tokenOf(s, pos); got != want {
			d.fatal("sequence %d reads token %d at position %d of block %d, wrote %d", s.id, got, pos, r.Blocks[pos/d.cfg.BlockSize], want)
		}
	}
}

// done is the Scheduler's StepDone.
func (d *day) done(p *Plan, step StepID, res []Result, elapsed time.Duration, bound, void uint64) {
	outs, err := d.core.Done(step, res, elapsed, nil)
	if err != nil {
		d.fatal("done: %v", err)
	}
	for _, o := range outs {
		s := o.Params.(*simulated)
		if o.HasToken && s.first == 0 {
			s.first = d.now
		}
		s.last = d.now
		if o.Failed || o.Finish != NotFinished {
			d.ended(s, o.Failed)
		}
	}
	d.news(step+1, bound, void)
}

// ended is a sequence's one terminal event.
func (d *day) ended(s *simulated, failed bool) {
	if s.ended {
		d.fatal("sequence %d ended twice", s.id)
	}
	s.ended = true
	if failed {
		d.counts.failed++
		return
	}
	if s.gone {
		return
	}
	d.counts.finished++
	last := time.Duration(0)
	for i, at := range []time.Duration{s.arrived, s.queued, s.scheduled, s.first, s.last} {
		if at == 0 && i == 3 && s.limits.MaxTokens == 0 {
			continue
		}
		if at < last || at == 0 && i > 0 {
			d.fatal("sequence %d: stamp %d is %v, after %v", s.id, i, at, last)
		}
		last = at
	}
	if n := len(s.out); n != s.limits.MaxTokens && (n == 0 || s.out[n-1] != 7 || n <= s.limits.MinTokens) {
		d.fatal("sequence %d has %d of %d tokens and no stop", s.id, n, s.limits.MaxTokens)
	}
	if len(s.prompt) <= 200 && s.group == 0 {
		d.longest = max(d.longest, s.scheduled-s.queued)
	}
}

// news tells the core what became of the plan that was taken.
func (d *day) news(step StepID, bound, void uint64) {
	if bound != 0 {
		commit, err := d.core.Bound(step, bound)
		if err != nil {
			d.fatal("bound: %v", err)
		}
		for _, id := range commit.First {
			if s := d.live[id]; s != nil && s.scheduled == 0 {
				s.scheduled = d.now
			}
		}
		d.counts.preempted += len(commit.Preempted)
	}
	d.core.Void(void)
	d.drained()
}

// rebuild is a failure of Scheduler or device: who has a token gets an error, the
// others are admitted again.
func (d *day) rebuild() {
	d.counts.rebuilds++
	d.note("the pipeline fails")
	d.pipeline()
	for id := SeqID(1); id <= d.next; id++ {
		s := d.live[id]
		if s == nil || !s.known {
			continue
		}
		switch {
		case s.gone || s.ended:
			delete(d.live, id)
		case len(s.out) > 0:
			d.ended(s, true)
			delete(d.live, id)
		default:
			s.scheduled, s.checked = 0, 0
			d.after(d.hop(), func() { d.admit(s) })
		}
	}
}

// check tests a proposal: budgets, and who writes where.
func (d *day) check(p *Plan) {
	tokens, decodes := 0, load{}
	writes := map[int32]SeqID{}
	for i := range p.Rows {
		r := &p.Rows[i]
		tokens += r.Len
		if r.Start >= r.PromptLen && r.Len == 1 {
			decodes.decode(r.Start)
		}
		for b := r.Start / d.cfg.BlockSize; b <= (r.Start+r.Len-1)/d.cfg.BlockSize; b++ {
			if o, ok := writes[r.Blocks[b]]; ok {
				d.fatal("plan %d: sequences %d and %d write block %d", p.Version, o, r.Seq, r.Blocks[b])
			}
			writes[r.Blocks[b]] = r.Seq
		}
	}
	if tokens > d.cfg.MaxBatchedTokens || len(p.Rows) > d.cfg.MaxSeqs {
		d.fatal("plan %d: %d tokens in %d rows, limits %d and %d", p.Version, tokens, len(p.Rows), d.cfg.MaxBatchedTokens, d.cfg.MaxSeqs)
	}
	// Beside streams the prompts' part is one decode step or MinChunk; the oldest
	// prompt's least part is a token, whatever it costs.
	if p.DecodeRows > 0 && p.PrefillTokens > p.DecodeRows && p.PrefillTokens > 8 {
		alone := d.core.cost.predict(decodes)
		if all := d.core.Predict(p); all > alone+2*max(alone, MinChunk) {
			d.fatal("plan %d: %d rows that decode take %v, with %d prompt tokens it is %v", p.Version, p.DecodeRows, alone, p.PrefillTokens, all)
		}
	}
}

// invariants tests the pool against who holds what, and places against entries.
func (d *day) invariants() {
	c := d.core
	refs := make([]int32, d.cfg.NumBlocks)
	for id, q := range c.seqs {
		if d.live[id] == nil {
			d.fatal("the core knows sequence %d, which has no place", id)
		}
		if q.bypassed > MaxBypass {
			d.fatal("sequence %d was overtaken %d times", id, q.bypassed)
		}
		for _, b := range q.blocks {
			refs[b]++
		}
	}
	free := 0
	for b := range refs {
		if refs[b] != c.pool.refs[b] {
			d.fatal("block %d has %d holders, pool says %d", b, refs[b], c.pool.refs[b])
		}
		if refs[b] == 0 {
			free++
		}
	}
	if free != c.pool.free {
		d.fatal("%d blocks are free, pool says %d", free, c.pool.free)
	}
	for id, s := range d.live {
		if s.known && c.seqs[id] == nil && d.now-s.queued > time.Hour {
			d.fatal("sequence %d has a place but no entry", id)
		}
		if !s.ended && !s.gone && s.queued > 0 && s.scheduled == 0 && d.now-s.queued > 20*time.Minute {
			d.fatal("sequence %d has waited %v for its first step", id, d.now-s.queued)
		}
	}
}

func TestDayOfMixedLoadKeepsEveryInvariant(t *testing.T) {
	cfg := Config{BlockSize: 16, MaxSeqs: 24, MaxBatchedTokens: 2048, MaxModelLen: 110_000, PrefixCache: true}
	cfg.NumBlocks = 8192
	began := time.Now()
	d := newDay(t, *daySeed, cfg)
	end := time.Duration(*dayHours * float64(time.Hour))
	d.after(0, func() { d.arrive(end) })
	for len(d.queue) > 0 {
		e := heap.Pop(&d.queue).(event)
		d.now = e.at
		e.do()
		if d.now > end+2*time.Hour {
			d.fatal("still busy two hours after the last client: %d live, %d waiting, %d running", len(d.live), len(d.core.waiting), len(d.core.running))
		}
	}
	d.invariants()
	if len(d.live) > 0 || !d.core.Idle() || d.core.pool.free != cfg.NumBlocks {
		d.fatal("at rest: %d places in use, core idle: %t, %d of %d blocks free", len(d.live), d.core.Idle(), d.core.pool.free, cfg.NumBlocks)
	}
	n := d.counts
	if n.finished == 0 || n.aborted == 0 || *dayHours >= 24 && (n.failed == 0 || n.rebuilds == 0 || n.long == 0 || n.preempted == 0) {
		t.Errorf("not all that may happen happened: %+v", n)
	}
	t.Logf("%.1f simulated hours in %.1f s: %+v, longest wait of a short prompt %v", d.now.Hours(), time.Since(began).Seconds(), n, d.longest)
}
