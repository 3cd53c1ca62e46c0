package sched

import (
	"container/heap"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"waybill/actors/waybill"
)

// checkEvery is how many events pass between two looks at the whole pool, which
// cost more than an event does. Waybills and plans are looked at after each.
const checkEvery = 64

var (
	dayHours = flag.Float64("hours", 0.5, "simulated hours of mixed load; make simulate runs 24")
	daySeed  = flag.Uint64("seed", 1, "seed of the simulated day: the same seed, the same day")
)

// day simulates a server's hours in virtual time: clients that come, wait, give up
// and misbehave (dayclients_test.go), a device whose steps take time, messages that
// take time, failures of rows and of the whole pipeline. The device has a memory of
// blocks, so that whoever reads another's block is found out. All is decided by one
// seed.
//
// After every event are checked: the waybills that it touched (stamps), and each plan
// that is offered (check: budgets, rows, who writes where, who has left). Every
// checkEvery events and at rest: blocks against their holders, places against
// entries, overtaking, waits, siblings (invariants). As they happen: one terminal
// event for each client, one report and one release of each sequence, parts of times
// that add up (book).
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
	begun   time.Duration // launch of the running step
	lane    time.Duration // when the device's last news arrives
	text    time.Duration // when the Detokenizer's last batch arrives

	next    SeqID
	live    map[SeqID]*simulated // those with a place
	touched []*simulated         // whose waybill this event may have stamped
	stems   [][]int32
	counts  struct {
		admitted, refused, finished, aborted, failed, stopped int // sequences
		rebuilds, steps, preempted, long, leaders             int
		replaced, withdrawn, void, dropped, even              int // plans, rows that Bind left out, and plans that a tile shortened
	}
	longest time.Duration // wait of a short prompt
}

// launched says when a plan was bound and what became of it.
type launched struct {
	bound, void uint64
	at          time.Duration
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

// drained is the Scheduler's decision once no message waits.
func (d *day) drained() {
	d.release()
	for range 3 {
		plan := d.propose()
		old := d.slot
		if d.core.Offered() != nil && old == nil {
			d.core.Discard(plan)
			d.counts.withdrawn++
			return // taken: the news is on its way
		}
		if old != nil {
			d.counts.replaced++
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
}

// propose is the core's next plan. Compared with that for a device without tiles, as many rows decode,
// less than a tile is left out, and no prompt that would end goes on.
func (d *day) propose() *Plan {
	unit := d.core.cfg.ChunkUnit
	if unit == 0 {
		return d.core.Next()
	}
	d.core.cfg.ChunkUnit = 0
	plain := d.core.Next()
	d.core.cfg.ChunkUnit = unit
	plan := d.core.Next()
	if plain == nil || plan == nil {
		if plain != plan {
			d.fatal("with tiles %v, without %v", plan, plain)
		}
		return plan
	}
	lens := map[SeqID]int{}
	for i := range plan.Rows {
		lens[plan.Rows[i].Seq] = plan.Rows[i].Len
	}
	for i := range plain.Rows {
		if r := &plain.Rows[i]; r.Sample && lens[r.Seq] != r.Len {
			d.fatal("sequence %d would end its prompt with %d tokens, and gets %d of a step of whole tiles:\n%s\n%s", r.Seq, r.Len, lens[r.Seq], plain.Describe(), plan.Describe())
		}
	}
	if less := plain.PrefillTokens - plan.PrefillTokens; less >= unit || plan.DecodeRows != plain.DecodeRows {
		d.fatal("with tiles %d rows decode and %d prefill, without %d and %d", plan.DecodeRows, plan.PrefillTokens, plain.DecodeRows, plain.PrefillTokens)
	}
	if plan.PrefillTokens < plain.PrefillTokens {
		d.counts.even++
	}
	d.core.Discard(plain)
	return plan
}

// release gives places back.
func (d *day) release() int {
	gone := d.core.Released()
	for _, id := range gone {
		s := d.live[id]
		if s == nil {
			d.fatal("sequence %d was released twice", id)
		}
		if !s.reported && s.bill.Reason() == waybill.Running {
			d.fatal("sequence %d was released but has not ended", id)
		}
		d.released(s)
	}
	return len(gone)
}

// wake starts the device from rest.
func (d *day) wake() {
	if d.running != nil || d.slot == nil {
		return
	}
	l := d.bind()
	step := d.step
	d.post(func() { d.news(step, l) })
}

// bind takes what is on offer and begins the step.
func (d *day) bind() launched {
	p := d.slot
	if d.slot = nil; p == nil {
		return launched{}
	}
	if p.After != d.step {
		d.counts.void++
		return launched{void: p.Version}
	}
	keep, kept := p.Bind(d.results, nil)
	d.counts.dropped += len(p.Rows) - kept
	if kept == 0 {
		d.counts.void++
		return launched{void: p.Version}
	}
	l := launched{bound: p.Version, at: d.now}
	d.running, d.keep, d.begun = p, keep, d.now+time.Duration(d.rng.IntN(50_000))
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
	d.after(d.begun-d.now+took, d.ofEpoch(d.finish))
	return l
}

// finish ends the running step: the device's memory is written and read.
func (d *day) finish() {
	p := d.running
	from, at := d.begun, d.now
	res := make([]Result, len(p.Rows))
	fail := d.rng.IntN(20000) == 0
	// Writes first: no row may read what another writes in the same step.
	for i := range p.Rows {
		if r := &p.Rows[i]; d.keep[i] {
			s := r.Params.(*simulated)
			for pos := r.Start; pos < r.Start+r.Len; pos++ {
				d.memory[r.Blocks[pos/d.cfg.BlockSize]][pos%d.cfg.BlockSize] = d.tokenAt(s, pos)
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
	l := d.bind()
	d.post(func() { d.done(step, res, from, at, l) })
}

// tokenAt returns the token at a position of a sequence.
func (d *day) tokenAt(s *simulated, pos int) int32 {
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
		if got, want := d.memory[r.Blocks[pos/d.cfg.BlockSize]][pos%d.cfg.BlockSize], d.tokenAt(s, pos); got != want {
			d.fatal("sequence %d reads token %d at position %d of block %d, wrote %d", s.id, got, pos, r.Blocks[pos/d.cfg.BlockSize], want)
		}
	}
}

// done is the Scheduler's StepDone of a step that ran from one time to another.
func (d *day) done(step StepID, res []Result, from, at time.Duration, l launched) {
	outs, err := d.core.Done(step, res, at-from, nil)
	if err != nil {
		d.fatal("done: %v", err)
	}
	var batch []tokenOf
	for _, o := range outs {
		s := o.Params.(*simulated)
		d.stamp(s, waybill.Launched, from)
		if o.Failed || o.Finish != NotFinished {
			d.reported(s, o.Failed)
		}
		if o.Failed {
			d.fails(s)
			continue
		}
		if s.bill.Reason() == waybill.Running && (o.HasToken || o.Finish != NotFinished) {
			d.stamp(s, waybill.FirstToken, at)
			batch = append(batch, tokenOf{s, o.HasToken, o.Finish})
		}
	}
	if batch != nil {
		d.text = max(d.text, d.now+d.hop())
		d.after(d.text-d.now, func() { d.detokenize(batch, at) })
	}
	d.news(step+1, l)
}

// reported is the end of a sequence as the core sees it: once.
func (d *day) reported(s *simulated, failed bool) {
	if s.reported {
		d.fatal("sequence %d ended twice", s.id)
	}
	s.reported = true
	if n := len(s.out); !failed && n != s.limits.MaxTokens && (n == 0 || s.out[n-1] != 7 || n <= s.limits.MinTokens) {
		d.fatal("sequence %d has %d of %d tokens and no stop", s.id, n, s.limits.MaxTokens)
	}
}

// news tells the core what became of the plan that was taken.
func (d *day) news(step StepID, l launched) {
	if l.bound != 0 {
		commit, err := d.core.Bound(step, l.bound)
		if err != nil {
			d.fatal("bound: %v", err)
		}
		for _, id := range commit.First {
			if s := d.live[id]; s != nil {
				if s.first {
					d.fatal("sequence %d was scheduled for the first time twice", id)
				}
				s.first = true
				d.stamp(s, waybill.Scheduled, l.at)
				if len(s.prompt) <= 200 && s.group == 0 {
					d.longest = max(d.longest, l.at-s.at(waybill.Queued))
				}
			}
		}
		d.counts.preempted += len(commit.Preempted)
	}
	d.core.Void(l.void)
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
		if s == nil || !s.inCore {
			continue
		}
		s.inCore = false
		if s.bill.At(waybill.FirstToken) != 0 || s.bill.Reason() != waybill.Running {
			d.fails(s)
			d.released(s)
			continue
		}
		s.out, s.checked, s.first = nil, 0, false
		d.after(d.hop(), func() { d.admit(s) })
	}
}

// check tests a proposal: budgets, and who writes where.
func (d *day) check(p *Plan) {
	tokens, decodes := 0, load{}
	writes := map[int32]SeqID{}
	for i := range p.Rows {
		r := &p.Rows[i]
		if r.Params.(*simulated).left {
			d.fatal("plan %d holds sequence %d, which has left", p.Version, r.Seq)
		}
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
		if s.inCore && c.seqs[id] == nil {
			d.fatal("sequence %d has a place but no entry", id)
		}
		if at := s.bill.At(waybill.Queued); at != 0 && s.bill.At(waybill.Scheduled) == 0 && s.bill.Reason() == waybill.Running &&
			d.now-s.at(waybill.Queued) > 20*time.Minute {
			d.fatal("sequence %d has waited %v for its first step", id, d.now-s.at(waybill.Queued))
		}
	}
	for _, s := range c.waiting {
		if err := c.leaderless(s); err != nil {
			d.fatal("%v", err)
		}
	}
	if len(c.groups) > len(c.seqs) {
		d.fatal("%d groups of siblings, %d sequences", len(c.groups), len(c.seqs))
	}
}

// leaderless returns an error if a sibling waits for a leader that is gone, or that
// has its prompt computed.
func (c *Core) leaderless(s *seq) error {
	if !c.siblingWaits(s) {
		return nil
	}
	id := c.groups[s.Group].leader
	switch l := c.seqs[id]; {
	case l == nil || l.ended:
		return fmt.Errorf("sequence %d waits for the prompt of %d, which is gone", s.ID, id)
	case l.generated > 0:
		return fmt.Errorf("sequence %d waits for the prompt of %d, which generates already", s.ID, id)
	}
	return nil
}

func TestDayOfMixedLoadKeepsEveryInvariant(t *testing.T) {
	for _, unit := range []int{0, 32} {
		t.Run(fmt.Sprint("tiles of ", unit), func(t *testing.T) { liveDay(t, unit) })
	}
}

// liveDay simulates a day of a device whose tiles have so many rows.
func liveDay(t *testing.T, unit int) {
	cfg := Config{BlockSize: 16, MaxSeqs: 24, MaxBatchedTokens: 2048, MaxModelLen: 110_000, PrefixCache: true, ChunkUnit: unit}
	cfg.NumBlocks = 8192
	began := time.Now()
	d := newDay(t, *daySeed, cfg)
	end := time.Duration(*dayHours * float64(time.Hour))
	d.after(0, func() { d.arrive(end) })
	for len(d.queue) > 0 {
		e := heap.Pop(&d.queue).(event)
		d.now = e.at
		e.do()
		d.stamps()
		if d.events++; d.events%checkEvery == 0 {
			d.invariants()
		}
		if d.now > end+2*time.Hour {
			d.fatal("still busy two hours after the last client: %d live, %d waiting, %d running", len(d.live), len(d.core.waiting), len(d.core.running))
		}
	}
	d.invariants()
	if len(d.live) > 0 || !d.core.Idle() || d.core.pool.free != cfg.NumBlocks || len(d.core.groups) > 0 {
		d.fatal("at rest: %d places in use, core idle: %t, %d of %d blocks free, %d groups", len(d.live), d.core.Idle(), d.core.pool.free, cfg.NumBlocks, len(d.core.groups))
	}
	n := d.counts
	if booked := n.finished + n.stopped + n.aborted + n.failed; booked != n.admitted {
		d.fatal("%d sequences were admitted, %d booked", n.admitted, booked)
	}
	if n.finished == 0 || n.stopped == 0 || n.aborted == 0 || n.leaders == 0 || n.replaced == 0 || n.withdrawn == 0 || n.dropped == 0 || (n.even > 0) != (unit > 0) ||
		*dayHours >= 24 && (n.failed == 0 || n.rebuilds == 0 || n.long == 0 || n.preempted == 0 || n.refused == 0 || n.void == 0) {
		t.Errorf("not all that may happen happened: %+v", n)
	}
	t.Logf("%.1f simulated hours in %.1f s: %+v, longest wait of a short prompt %v", d.now.Hours(), time.Since(began).Seconds(), n, d.longest)
}
