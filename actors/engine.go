// Package actors is the engine: independent actors, each with one job, that a
// request passes on its way from bytes to bytes. Read messages.go for what they
// say to each other and docs/ARCHITECTURE.md for the path of one request.
package actors

import (
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"waybill/actors/mailbox"
	"waybill/actors/sched"
	"waybill/actors/waybill"
	"waybill/kernels"
	"waybill/model"
	"waybill/model/tokenizer"
)

// Config says how an engine works. Zero values are not defaulted here: cmd does.
type Config struct {
	// ModelName labels metrics.
	ModelName string
	// MaxModelLen bounds prompt and output of a sequence, in tokens.
	MaxModelLen int
	// MaxSeqs, MaxBatchedTokens, BlockSize, NumBlocks, ChunkUnit, PrefixCache and
	// PrefillChunk size the scheduler (sched.Config).
	MaxSeqs, MaxBatchedTokens, BlockSize, NumBlocks, ChunkUnit int
	PrefixCache                                                bool
	PrefillChunk                                               time.Duration
	// KVType is the type of cached keys and values.
	KVType kernels.DType
	// Scratch, if not nil, is the activations of a device's first executor, for
	// MaxBatchedTokens and LogitRows(MaxSeqs). On a CPU it is not used.
	Scratch *model.Scratch
	// MaxQueuedReqs and MaxQueuedTokens bound admission; MaxQueuedTokens 0 means
	// no bound.
	MaxQueuedReqs, MaxQueuedTokens int
	// KeepAlive is the interval of comments in silent streams; 0 sends none.
	KeepAlive time.Duration
	// Intakes and Detokenizers are the sizes of the pools.
	Intakes, Detokenizers int
	// OnCPU says that computing takes place on the actors' own cores.
	OnCPU bool
	// Dump gets a TTFTSPLIT line per ended sequence, Log a structured one, Tracer
	// its spans; nil means none. They must not block: see LineWriter.
	Dump   io.Writer
	Log    *slog.Logger
	Tracer trace.Tracer
	// LinesDropped returns how many lines Dump and Log have lost; may be nil.
	LinesDropped func() int64
	// OnFatal is called once when the engine cannot go on; everybody was
	// answered. OnReport, if set, hears of each actor failure.
	OnFatal  func(error)
	OnReport func(mailbox.Failure)
	// Fault, if set, is called at named points of the actors' work; tests panic
	// or sleep in it.
	Fault func(point string)
	// Wrap, if set, wraps each executor; tests make a device fail in it.
	Wrap func(Executor) Executor
	// StuckAfter is how long a handler or a step may run before it counts as stuck;
	// 0 means 1 s.
	StuckAfter time.Duration
	// ConsoleActions lets viewers cancel requests and drain; ShowContent keeps
	// prompts and outputs for them.
	ConsoleActions, ShowContent bool
	// Telemetry reads the devices, from any goroutine; nil if there are none to ask. It is called at scrapes and while
	// somebody watches.
	Telemetry func() ([]GPUInfo, error)
	// StallAfter is the age of a step in flight from which the engine counts as
	// hung; 0 means 30 s.
	StallAfter time.Duration
}

// Engine is one model being served.
type Engine struct {
	cfg   Config
	model *model.Model
	tok   *tokenizer.Tokenizer
	eos   []int32

	system   *mailbox.System
	places   admission
	registry registry
	metrics  *engineMetrics
	pipe     atomic.Pointer[pipeline]
	exec     Executor
	intakes  []*intakeActor
	shards   []*mailbox.Ref
	ledger   *mailbox.Ref
	super    *mailbox.Ref

	// What the console shows.
	inspector *mailbox.Ref
	viewers   atomic.Int64
	lane      stepLane
	exemplars exemplars
	restarts  restartLog
	stuck     *stuckDetector
	startedAt int64

	nextID     atomic.Uint64
	inStep     atomic.Int64 // when the step in flight was launched, 0 if none
	heldSince  atomic.Int64 // when the Scheduler began to wait for a Detokenizer, or 0
	ready      atomic.Bool
	draining   atomic.Bool
	rebuilding atomic.Bool
	dead       atomic.Bool
	failuresMu sync.Mutex
	failures   map[string][]int64
	calibrated []calibration
}

// mailboxClock times messages. A build that does not observe has no use for it:
// on a CPU no actor spins by it either.
func mailboxClock() int64 {
	if !waybill.Observing {
		return 0
	}
	return waybill.Now()
}

// New starts an engine for a loaded model. It is ready when New returns.
func New(cfg Config, m *model.Model, tok *tokenizer.Tokenizer) (*Engine, error) {
	e := &Engine{
		cfg: cfg, model: m, tok: tok, eos: m.Config().EOSTokenIDs,
		system:   mailbox.NewSystem(mailboxClock),
		places:   admission{maxSeqs: int64(cfg.MaxQueuedReqs), maxTokens: int64(cfg.MaxQueuedTokens)},
		registry: registry{seqs: map[*Sequence]struct{}{}},
		failures: map[string][]int64{}, startedAt: waybill.Now(),
	}
	e.stuck = e.newStuckDetector()
	e.metrics = newEngineMetrics(e)
	exec, err := e.newExecutor()
	if err != nil {
		return nil, err
	}
	e.exec = exec
	if err := e.warmUp(); err != nil {
		return nil, err
	}
	if err := e.startFrontend(); err != nil {
		return nil, err
	}
	if err := e.startPipeline(1, exec); err != nil {
		return nil, err
	}
	go e.stuck.run()
	e.ready.Store(true)
	return e, nil
}

// newExecutor makes the device side: KV memory and activations.
func (e *Engine) newExecutor() (Executor, error) {
	spec := e.model.CacheSpec(e.cfg.BlockSize, e.cfg.NumBlocks, e.cfg.KVType)
	var x Executor
	var err error
	if step, ok := e.model.Backend().(kernels.Stepper); ok {
		x, err = newDeviceExecutor(e.model, step, spec, e.cfg.MaxBatchedTokens, e.logitRows(), e.cfg.Scratch)
		e.cfg.Scratch = nil
	} else {
		// Beside the memory of a step that hangs, new memory is taken as it is needed.
		x, err = newHostExecutor(e.model, spec, e.cfg.MaxBatchedTokens, e.logitRows(), nil, e.exec == nil)
	}
	if err != nil || e.cfg.Wrap == nil {
		return x, err
	}
	return e.cfg.Wrap(x), nil
}

// logitRows returns how many rows of logits a step may ask for.
func (e *Engine) logitRows() int { return LogitRows(e.cfg.MaxSeqs) }

// LogitRows is the largest number of rows of logits of a step of maxSeqs sequences.
func LogitRows(maxSeqs int) int { return maxSeqs + sched.PromptLogitRows }

// ring returns the places of a ring that is not full as long as its actor works: each
// accepted sequence has at most four messages under way to one actor. Beside one that
// stands still, others may end and be accepted without limit (tell). Detokenizers, which
// get a message for each step, have tokenRing places more.
func (e *Engine) ring() int { return 4*e.cfg.MaxQueuedReqs + controlRing }

// spawn starts a long-lived actor with the engine's spin rule.
func (e *Engine) spawn(o mailbox.Options) (*mailbox.Ref, error) {
	if !e.cfg.OnCPU && runtime.NumCPU() > 4 {
		o.Spin, o.Live = spinTime, e.working
	}
	return e.system.Spawn(o)
}

// working reports whether a step is in flight.
func (e *Engine) working() bool { return e.inStep.Load() != 0 }

// startFrontend starts the actors that outlive a pipeline.
func (e *Engine) startFrontend() (err error) {
	e.super, err = e.spawn(mailbox.Options{
		Name: "supervisor", Kind: "supervisor", Ring: controlRing,
		New: func(*mailbox.Ref) mailbox.Handler { return &supervisorActor{engine: e} },
	})
	if err != nil {
		return err
	}
	e.ledger, err = e.spawn(mailbox.Options{
		Name: "ledger", Kind: "ledger", Ring: ledgerRing,
		New:       func(*mailbox.Ref) mailbox.Handler { return &ledgerActor{engine: e} },
		OnFailure: func(f mailbox.Failure) mailbox.Directive { e.report(f); return e.restartOrDie(f) },
	})
	if err != nil {
		return err
	}
	var inspector *inspectorActor
	e.inspector, err = e.spawn(mailbox.Options{
		Name: "inspector", Kind: "inspector", Ring: controlRing + 2*maxViewers,
		New: func(ref *mailbox.Ref) mailbox.Handler {
			viewers := map[*Watcher]struct{}{}
			if inspector != nil {
				viewers = inspector.viewers // a restart loses no viewer
			}
			inspector = &inspectorActor{engine: e, ref: ref, viewers: viewers}
			if len(viewers) > 0 {
				inspector.start()
			}
			return inspector
		},
		OnFailure: func(f mailbox.Failure) mailbox.Directive {
			// No request needs it: rather than the process its viewers are given up.
			e.report(f)
			if e.failsTooOften(f) {
				clear(inspector.viewers)
			}
			return mailbox.Restart
		},
	})
	if err != nil {
		return err
	}
	for i := range e.cfg.Detokenizers {
		var cur *detokActor
		ref, err := e.spawn(mailbox.Options{
			Name: fmt.Sprintf("detokenizer-%d", i), Kind: "detokenizer", Ring: e.ring() + tokenRing,
			New: func(*mailbox.Ref) mailbox.Handler {
				cur = &detokActor{engine: e, live: map[*Sequence]struct{}{}}
				return cur
			},
			OnFailure: func(f mailbox.Failure) mailbox.Directive { return e.onDetokenizerFailure(cur, f) },
		})
		if err != nil {
			return err
		}
		e.shards = append(e.shards, ref)
	}
	for i := range e.cfg.Intakes {
		a := &intakeActor{engine: e}
		_, err = e.spawn(mailbox.Options{
			Name: fmt.Sprintf("intake-%d", i), Kind: "intake", Ring: e.ring(),
			New: func(ref *mailbox.Ref) mailbox.Handler {
				if a.works = nil; a.ref == nil {
					a.ref = ref // the same one after a restart
				}
				return a
			},
			OnFailure: func(f mailbox.Failure) mailbox.Directive { return e.onIntakeFailure(a, f) },
		})
		if err != nil {
			return err
		}
		e.intakes = append(e.intakes, a)
	}
	return nil
}

// fault calls the test hook.
func (e *Engine) fault(point string) {
	if e.cfg.Fault != nil {
		e.cfg.Fault(point)
	}
}

// shardIndex returns the Detokenizer of a sequence: one for all of a request.
func (e *Engine) shardIndex(s *Sequence) int {
	return int(uint64(s.req.seqs[0].ID) % uint64(len(e.shards)))
}

// tellDetokenizer posts a step's tokens to a shard, when there is a place for them.
func (e *Engine) tellDetokenizer(shard *mailbox.Ref, b *tokenBatch) {
	defer e.heldSince.Store(0)
	for shard.Depth() >= tokenRing || !shard.Tell(b) {
		e.heldSince.CompareAndSwap(0, waybill.Now())
		select {
		case <-shard.Done():
			return // the engine ends
		case <-time.After(tokenPause):
		}
	}
}

// tellScheduler posts to the Scheduler of the day. A message that an ending one
// refuses is made good by the rebuild, from the registry.
func (e *Engine) tellScheduler(m any) { tell(e.pipe.Load().sched, m) }

// tellEnd posts an end that somebody else than the Detokenizer decided.
func (s *Sequence) tellEnd() { tell(s.shard, endSeq{s}) }

// tell posts a message that somebody waits for, now or as soon as the ring has a place.
// The caller may be the actor itself and does not wait. Messages to an actor may change
// their order.
func tell(to *mailbox.Ref, m any) {
	if to.Tell(m) {
		return
	}
	go func() {
		for {
			select {
			case <-to.Done():
				return
			case <-time.After(fullPause):
			}
			if to.Tell(m) {
				return
			}
		}
	}()
}

// admit posts a sequence's Admit.
func (e *Engine) admit(s *Sequence) {
	s.posted.Store(true)
	e.tellScheduler(admit{s})
}

// released gives a sequence's place back and books its engine side.
func (e *Engine) released(s *Sequence) {
	if e.places.giveBack(s) {
		s.Bill.Stamp(waybill.Released, waybill.Now())
		e.book(s, waybill.EngineSide)
	}
}

// dropped ends Intake's work for a request that ended on its way.
func (e *Engine) dropped(r *Request) {
	for _, s := range r.seqs {
		e.released(s)
	}
}

// refuse answers a request that Intake found wrong. It was never admitted.
func (e *Engine) refuse(r *Request, f *Failure) {
	if f.Status < 500 {
		r.invalid.Store(true)
		e.metrics.admitted.Add(-int64(len(r.seqs)))
		e.metrics.invalid.Add(int64(len(r.seqs)))
	}
	e.failSequence(r.seqs[0], f)
	e.dropped(r)
}

// stepStarted and stepFinished keep the step in flight for /health.
func (e *Engine) stepStarted(at int64) { e.inStep.Store(at) }
func (e *Engine) stepFinished()        { e.inStep.Store(0) }

// scheduled copies the scheduler's counters to where a scrape reads them.
func (e *Engine) scheduled(st sched.Stats) {
	m := e.metrics
	m.running.Store(int64(st.Running))
	m.waiting.Store(int64(st.Waiting))
	m.deferred.Store(int64(st.Deferred))
	m.kvUsed.Store(int64(st.TotalBlocks - st.FreeBlocks))
	m.kvTotal.Store(int64(st.TotalBlocks))
	m.kvCached.Store(int64(st.CachedBlocks))
	m.preemptions.Store(st.Preemptions)
	m.prefixQueries.Store(st.PrefixQueries)
	m.prefixHits.Store(st.PrefixHits)
}
