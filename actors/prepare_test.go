package actors

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"waybill/actors/sched"
	"waybill/actors/waybill"
	"waybill/kernels"
)

// polled is a device that computes on the CPU, in Finish, and polls there before it does.
// A draw takes the token that its number points at, or the largest logit without penalties
// and what is banned.
type polled struct {
	kernels.Backend
	deaf bool // prepares nothing
	// poll, if not nil, takes the place of one look at what comes next. GPU-step's goroutine.
	poll func(meanwhile kernels.Meanwhile)

	batch, next *kernels.Batch
	forward     kernels.Forward
	logits      []float32
	number      int

	mu     sync.Mutex
	log    []string // what happened, in order
	draws  []float64
	asked  int // batches to prepare
	served int // prepared ones that were started
	ahead  bool
	given  int // queued ahead and given up
}

func (d *polled) note(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = append(d.log, what)
}

func (d *polled) NewFloats(n int) (kernels.Buffer, error) { return d.NewBuffer(n) }
func (d *polled) NewRows(n int) (kernels.Buffer, error)   { return d.NewBuffer(n) }
func (d *polled) Sizes() []int                            { return []int{1, 2, 4, 8} }
func (d *polled) Memory() (free, total int64, err error)  { return 1 << 30, 1 << 30, nil }

// copyBatch copies all that the caller may change.
func copyBatch(b *kernels.Batch) *kernels.Batch {
	c := &kernels.Batch{
		Tokens: slices.Clone(b.Tokens), Positions: slices.Clone(b.Positions), Slots: slices.Clone(b.Slots),
		Seqs: slices.Clone(b.Seqs), Logits: slices.Clone(b.Logits), Draws: slices.Clone(b.Draws),
	}
	for i := range c.Seqs {
		c.Seqs[i].Blocks = slices.Clone(c.Seqs[i].Blocks)
	}
	return c
}

func (d *polled) QueueAhead() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.next == nil {
		panic("nothing was prepared")
	}
	d.ahead = true
}

func (d *polled) GiveUp() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ahead {
		d.ahead = false
		d.given++
	}
}

func (d *polled) Start(b *kernels.Batch, forward kernels.Forward) error {
	d.GiveUp()
	d.batch, d.next, d.forward = copyBatch(b), nil, forward
	d.number++
	d.note(fmt.Sprint("start ", d.number))
	return nil
}

func (d *polled) Prepare(b *kernels.Batch) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.asked++; d.deaf {
		return false
	}
	d.next = copyBatch(b)
	return true
}

func (d *polled) StartPrepared(tokens []int32) error {
	if len(tokens) != len(d.next.Tokens) {
		return fmt.Errorf("%d tokens for a batch of %d", len(tokens), len(d.next.Tokens))
	}
	d.batch, d.next = d.next, nil
	copy(d.batch.Tokens, tokens)
	d.number++
	d.note(fmt.Sprint("start ", d.number))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.served++
	d.ahead = false
	return nil
}

func (d *polled) Finish(out []kernels.Picked, meanwhile kernels.Meanwhile) (kernels.StepTime, error) {
	if meanwhile != nil && d.poll != nil {
		d.poll(meanwhile)
	} else if meanwhile != nil {
		meanwhile(false)
	}
	d.Begin(d.batch)
	device := d.forward(d.batch)
	vocab := 0
	if len(out) > 0 {
		vocab = device.Len() / (8 + sched.PromptLogitRows)
		d.logits = append(d.logits[:0], make([]float32, len(out)*vocab)...)
		d.Read(d.logits, device)
	}
	if err := d.End(); err != nil {
		return kernels.StepTime{}, err
	}
	for i := range out {
		row := slices.Clone(d.logits[i*vocab : (i+1)*vocab])
		out[i].Finite = true
		if len(d.batch.Draws) > 0 && d.batch.Draws[i].On {
			draw := &d.batch.Draws[i]
			out[i].Drawn = true
			d.draws = append(d.draws, draw.Uniform)
			for _, s := range draw.Seen {
				row[s.ID] -= draw.Frequency * float32(s.Count)
			}
			for _, id := range draw.Banned {
				row[id] = -math.MaxFloat32
			}
			if draw.Scale > 0 {
				row[int(draw.Uniform*float64(vocab))] = math.MaxFloat32
			}
		}
		out[i].Token = int32(slices.Index(row, slices.Max(row)))
	}
	d.note(fmt.Sprint("done ", d.number))
	return kernels.StepTime{Started: time.Duration(d.number)*time.Millisecond + 1, Ended: time.Duration(d.number+1) * time.Millisecond, Launch: -1}, nil
}

func (d *polled) ReadLogits(dst []float32, row int) error {
	copy(dst, d.logits[row*len(dst):])
	return nil
}

// prepares polls until the next step has been prepared, or for so long that there is none.
func (d *polled) prepares(meanwhile kernels.Meanwhile) {
	for end := time.Now().Add(20 * time.Millisecond); d.next == nil && time.Now().Before(end); time.Sleep(20 * time.Microsecond) {
		meanwhile(false)
	}
	meanwhile(true)
}

// watched is an executor whose every launch must be what was bound: those rows of the plan,
// with the tokens of the step before.
type watched struct {
	Executor
	t *testing.T
	d *polled
}

func (w *watched) Launch(plan *sched.Plan, keep []bool, results []sched.Result) {
	w.Executor.Launch(plan, keep, results)
	type row struct {
		start, n int
		token    int32
	}
	var want, got []row
	for i := range plan.Rows {
		if r := &plan.Rows[i]; keep[i] {
			is := row{r.Start, r.Len, 0}
			if r.Tokens != nil {
				is.token = r.Tokens[0]
			} else {
				is.token = results[r.From].Token
			}
			want = append(want, is)
		}
	}
	for _, s := range w.d.batch.Seqs {
		got = append(got, row{s.Context, s.Len, w.d.batch.Tokens[s.First]})
	}
	slices.SortStableFunc(want, func(a, b row) int { // rows of one token first
		switch {
		case a.n == 1 && b.n != 1:
			return -1
		case a.n != 1 && b.n == 1:
			return 1
		}
		return 0
	})
	if !slices.Equal(got, want) {
		w.t.Errorf("launched %v, bound %v", got, want)
	}
}

// startPolled serves on a polled device.
func startPolled(t *testing.T, cfg Config, set func(*polled)) (*testEngine, *polled) {
	t.Helper()
	d := &polled{}
	if set != nil {
		set(d)
	}
	cfg.OnCPU = false
	wrap := cfg.Wrap
	cfg.Wrap = func(x Executor) Executor {
		if x = (&watched{x, t, d}); wrap != nil {
			x = wrap(x)
		}
		return x
	}
	e := startEngineOn(t, cfg, func(b kernels.Backend) kernels.Backend {
		d.Backend = b
		return d
	})
	return e, d
}

// counts returns how many batches were to be prepared, and how many of them were started.
func (d *polled) counts() (asked, served int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asked, d.served
}

func TestPreparedStepsYieldTheSameTokens(t *testing.T) {
	e, d := startPolled(t, testConfig(), func(d *polled) { d.poll = d.prepares })
	for range 2 {
		var wg sync.WaitGroup
		for i, g := range goldens(t) {
			wg.Go(func() {
				r := e.request(g.IDs, len(g.Tokens))
				want := g.Tokens
				if i%2 == 1 { // the row of a prepared step that is left out
					r.StopIDs, want = []int32{g.Tokens[len(g.Tokens)/2]}, g.Tokens[:slices.Index(g.Tokens, g.Tokens[len(g.Tokens)/2])]
				}
				got, err := e.serve(r, &testConn{})
				if len(got) > len(want) && i%2 == 1 {
					got = got[:len(want)] // the stop token itself
				}
				if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("prompt %d: %v\n got %v\nwant %v", i, err, got, want)
				}
			})
		}
		wg.Wait()
	}
	e.quiet()
	if asked, served := d.counts(); served == 0 || served == asked {
		t.Errorf("%d steps were prepared, %d of these started: want some, and some not", asked, served)
	}
}

// The last stream ends by a token that is seen when the next step is queued ahead already:
// the device must not be left waiting for it.
func TestNothingIsQueuedAheadAtRest(t *testing.T) {
	e, d := startPolled(t, testConfig(), func(d *polled) { d.poll = d.prepares })
	g := goldens(t)[0]
	r := e.request(g.IDs, len(g.Tokens))
	r.StopIDs = []int32{g.Tokens[len(g.Tokens)/2]}
	if _, err := e.serve(r, &testConn{}); err != nil {
		t.Fatal(err)
	}
	e.quiet()
	eventually(t, "what was queued ahead is given up", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.given == 1 && !d.ahead
	})
}

// GPU-step fails when the next step is queued ahead, and nobody is left to be served: the
// device must not be left waiting for it.
func TestNothingIsQueuedAheadAfterAFailure(t *testing.T) {
	var d *polled
	var failed atomic.Bool
	var first int
	cfg := testConfig()
	cfg.Fault = func(point string) {
		if point != "bind" || d == nil {
			return
		}
		d.mu.Lock()
		ahead := d.ahead
		d.mu.Unlock()
		if ahead && d.number > first+4 && failed.CompareAndSwap(false, true) { // the client has tokens: nothing is done again
			panic("planted at " + point)
		}
	}
	var e *testEngine
	e, d = startPolled(t, cfg, func(made *polled) { made.poll, d = made.prepares, made })
	first = d.number
	g := goldens(t)[0]
	c := &testConn{}
	if _, err := e.serve(e.request(g.IDs, len(g.Tokens)), c); err == nil && !strings.Contains(c.String(), "failure 500") {
		t.Errorf("a request outlived its step: %q", c.String())
	}
	e.quiet()
	eventually(t, "what was queued ahead is given up", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.given == 1 && !d.ahead
	})
	if got, err := e.serve(e.request(g.IDs, len(g.Tokens)), &testConn{}); err != nil || !slices.Equal(got, g.Tokens) {
		t.Errorf("after the failure: %v, %v, want %v", got, err, g.Tokens)
	}
	e.quiet()
}

func TestPreparedDrawsAreThoseOfTheirTurn(t *testing.T) {
	var draws [2][]float64
	for i, deaf := range []bool{false, true} {
		e, d := startPolled(t, testConfig(), func(d *polled) { d.poll, d.deaf = d.prepares, deaf })
		r := e.request(longIDs(20), 12)
		r.Sampling.Temperature, r.Sampling.Seed = 1, 7
		if got, err := e.serve(r, &testConn{}); err != nil || len(got) != 12 {
			t.Fatalf("%v, %v", got, err)
		}
		e.quiet()
		draws[i] = slices.Clone(d.draws)
		if _, served := d.counts(); deaf != (served == 0) {
			t.Errorf("deaf %t: %d prepared steps", deaf, served)
		}
	}
	if !slices.Equal(draws[0], draws[1]) {
		t.Errorf("prepared %v\n   else %v", draws[0], draws[1])
	}
	if slices.Sort(draws[0]); len(slices.Compact(draws[0])) != 12 {
		t.Errorf("a draw was made twice: %v", draws[0])
	}
}

// A penalty depends on the last token itself: such a step must not be prepared before it.
func TestStepsWithPenaltiesAreNotPrepared(t *testing.T) {
	e, d := startPolled(t, testConfig(), func(d *polled) {
		d.poll = func(meanwhile kernels.Meanwhile) {
			for range 20 {
				meanwhile(false)
				time.Sleep(50 * time.Microsecond)
			}
		}
	})
	r := e.request(longIDs(20), 12)
	r.Sampling.FrequencyPenalty = 0.5
	if got, err := e.serve(r, &testConn{}); err != nil || len(got) != 12 {
		t.Fatalf("%v, %v", got, err)
	}
	e.quiet()
	if asked, _ := d.counts(); asked != 0 {
		t.Errorf("%d steps were prepared", asked)
	}
}

func TestTheNextStepIsLaunchedBeforeAnybodyIsTold(t *testing.T) {
	cfg := testConfig()
	var d *polled
	cfg.Fault = func(point string) {
		switch {
		case d == nil:
		case point == "scheduler":
			d.note("told")
		case point == "launch":
			time.Sleep(2 * time.Millisecond) // who was told before would have time to say so
		}
	}
	var e *testEngine
	e, d = startPolled(t, cfg, func(made *polled) { made.poll, d = made.prepares, made })
	d.mu.Lock()
	d.log = nil
	d.mu.Unlock()
	if got, err := e.serve(e.request(longIDs(20), 10), &testConn{}); err != nil || len(got) != 10 {
		t.Fatalf("%v, %v", got, err)
	}
	e.quiet()
	d.mu.Lock()
	defer d.mu.Unlock()
	launched := 0
	for i, what := range d.log[:len(d.log)-1] {
		var n int
		if _, err := fmt.Sscanf(what, "done %d", &n); err != nil || n == d.number {
			continue
		}
		if launched++; d.log[i+1] != fmt.Sprint("start ", n+1) {
			t.Errorf("after step %d: %q, want the next launch\n%v", n, d.log[i+1], d.log)
		}
	}
	if launched < 5 {
		t.Errorf("only %d steps followed another: %v", launched, d.log)
	}
}

// The plan stays on offer while it is prepared: a newcomer that comes then is in the next
// step all the same, whether or not there is time to prepare that one.
func TestANewcomerIsNotBehindAPreparedStep(t *testing.T) {
	for _, again := range []bool{true, false} {
		var held atomic.Bool
		prepared, release := make(chan struct{}, 1), make(chan struct{})
		cfg := testConfig()
		o := &offers{}
		cfg.Fault = o.hook
		e, _ := startPolled(t, cfg, func(d *polled) {
			d.poll = func(meanwhile kernels.Meanwhile) {
				d.prepares(meanwhile)
				if d.next != nil && held.CompareAndSwap(true, false) {
					prepared <- struct{}{}
					<-release
					if again {
						meanwhile(false)
						meanwhile(true)
					}
				}
			}
		})
		o.watch(e)
		var wg sync.WaitGroup
		stream := e.request(longIDs(20), 100)
		held.Store(true)
		wg.Go(func() {
			if got, err := e.serve(stream, &testConn{}); err != nil || len(got) != 100 {
				t.Errorf("the stream: %d tokens, %v", len(got), err)
			}
		})
		<-prepared
		late := e.request(longIDs(8), 4)
		w := e.Submit(late)
		wg.Go(func() {
			if got, err := e.finish(late, w, &testConn{}); err != nil || len(got) != 4 {
				t.Errorf("the newcomer: %v, %v", got, err)
			}
		})
		eventually(t, "the newcomer is in the plan on offer", func() bool { return len(o.get()) == 2 })
		close(release)
		wg.Wait()
		b := late.Sequences()[0].Bill
		eventually(t, "its wait is known", func() bool { return b.At(waybill.Scheduled) != 0 })
		if n := b.StepsWaited.Load(); n != 1 {
			t.Errorf("prepared again: %t: the newcomer waited for %d steps to end, want 1: the one that ran", again, n)
		}
		e.quiet()
	}
}

func TestAPlanIsNotUsedAgainWhileItIsRead(t *testing.T) {
	p, plan := &pipeline{}, &sched.Plan{}
	p.unread(nil)
	p.unread(plan) // nobody reads it
	p.read.Store(plan)
	p.unread(&sched.Plan{})
	var free atomic.Bool
	done := make(chan bool)
	go func() {
		p.unread(plan)
		done <- free.Load()
	}()
	time.Sleep(10 * time.Millisecond)
	free.Store(true)
	p.read.Store(nil)
	if !<-done {
		t.Error("the plan was free while it was read")
	}
}

// Whatever is prepared while others come, end, go away or are preempted, every sequence gets
// the tokens that it gets alone.
func TestTokensDoNotDependOnWhatWasPrepared(t *testing.T) {
	for name, blocks := range map[string]int{"room": 256, "preemption": 16} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig()
			cfg.MaxModelLen, cfg.NumBlocks = 200, blocks
			e, d := startPolled(t, cfg, func(d *polled) {
				d.poll = func(meanwhile kernels.Meanwhile) {
					for end := time.Now().Add(100 * time.Microsecond); d.next == nil && time.Now().Before(end); runtime.Gosched() {
						meanwhile(false)
					}
					meanwhile(true)
				}
			})
			rng := rand.New(rand.NewPCG(3, 4))
			request := func(i int) *Request {
				r := e.request(longIDs(1+i*13%60), 30+i*7%50)
				switch o := &r.Sampling; i % 6 {
				case 1:
					o.MinTokens = 20
				case 2:
					o.FrequencyPenalty = 0.5
				case 3:
					o.Logprobs = 2
				case 4:
					o.Temperature, o.Seed = 1, uint64(i)
				case 5:
					o.Temperature, o.Seed, o.MinTokens = 1, uint64(i), 20
				}
				return r
			}
			var want [18][]int32
			for i := range want {
				var err error
				if want[i], err = e.serve(request(i), &testConn{}); err != nil || len(want[i]) == 0 {
					t.Fatal(want[i], err)
				}
			}
			var wg sync.WaitGroup
			for i := range want {
				r, c, leaves := request(i), &testConn{}, 0
				tokens := want[i]
				switch rng.IntN(4) {
				case 0:
					leaves = 1 + rng.IntN(10)
					c.onWrite = func(n int) error {
						if n == leaves {
							e.Abort(r)
						}
						return nil
					}
				case 1: // known when the next step is prepared already
					if stop := tokens[len(tokens)-2]; slices.Index(tokens, stop) >= r.Sampling.MinTokens {
						r.StopIDs, tokens = []int32{stop}, tokens[:slices.Index(tokens, stop)+1]
					}
				}
				wg.Go(func() {
					got, err := e.serve(r, c)
					switch {
					case leaves > 0:
						if len(got) > len(tokens) || !slices.Equal(got, tokens[:len(got)]) {
							t.Errorf("request %d, which left:\n got %v\nwant %v", i, got, tokens)
						}
					case err != nil || !slices.Equal(got, tokens):
						t.Errorf("request %d: %v\n got %v\nwant %v", i, err, got, tokens)
					}
				})
			}
			wg.Wait()
			e.quiet()
			if asked, served := d.counts(); served == 0 || served == asked {
				t.Errorf("%d steps were prepared, %d of these started: want some, and some not", asked, served)
			}
			if n := e.metrics.preemptions.Load(); (n > 0) != (name == "preemption") {
				t.Errorf("%d preemptions", n)
			}
		})
	}
}
