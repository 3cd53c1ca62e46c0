package actors

import (
	"fmt"
	"runtime"
	"sync/atomic"

	"waybill/actors/mailbox"
	"waybill/actors/sched"
)

// planSlot is a mailbox of one plan: the Scheduler swaps plans in, GPU-step swaps
// them out at the last moment before a launch.
type planSlot = atomic.Pointer[sched.Plan]

// pipeline is one incarnation of Scheduler, GPU-step and what they share.
type pipeline struct {
	epoch uint64
	slot  planSlot
	// read is the plan on offer that GPU-step reads at this moment, nil at most times.
	read  planSlot
	sched *mailbox.Ref
	gpu   *mailbox.Ref
	// handoffs are GPU-step's countdowns, reused in turn.
	handoffs []*handoff
}

// unread waits until GPU-step does not read a plan that is no longer on offer: some
// microseconds at most. The core may then use the plan again.
func (p *pipeline) unread(plan *sched.Plan) {
	for plan != nil && p.read.Load() == plan {
		runtime.Gosched()
	}
}

// startPipeline starts a Scheduler and a GPU-step of the given epoch.
func (e *Engine) startPipeline(epoch uint64, exec Executor) error {
	core, err := sched.New(sched.Config{
		BlockSize: e.cfg.BlockSize, NumBlocks: e.cfg.NumBlocks, MaxSeqs: e.cfg.MaxSeqs,
		MaxBatchedTokens: e.cfg.MaxBatchedTokens, MaxModelLen: e.cfg.MaxModelLen,
		PrefixCache: e.cfg.PrefixCache, PrefillChunk: e.cfg.PrefillChunk, ChunkUnit: e.cfg.ChunkUnit, Epoch: epoch,
	})
	if err != nil {
		return err
	}
	for _, c := range e.calibrated {
		core.Calibrate(c.start, c.tokens, c.elapsed)
	}
	p := &pipeline{epoch: epoch}
	failed := func(f mailbox.Failure) mailbox.Directive {
		n := e.report(f)
		e.rebuilding.Store(true)
		e.super.Tell(pipelineFailed{p, f, n})
		return mailbox.Stop
	}
	p.gpu, err = e.spawn(mailbox.Options{
		Name: fmt.Sprintf("gpu-step-%d", epoch), Kind: "gpu-step", Ring: controlRing, LockThread: !e.cfg.OnCPU,
		New:       func(*mailbox.Ref) mailbox.Handler { return newGPUStep(e, p, exec) },
		OnFailure: failed,
	})
	if err != nil {
		return err
	}
	p.sched, err = e.spawn(mailbox.Options{
		Name: fmt.Sprintf("scheduler-%d", epoch), Kind: "scheduler", Ring: e.ring(),
		New: func(*mailbox.Ref) mailbox.Handler {
			return &schedulerActor{
				engine: e, pipe: p, core: core, seqs: map[sched.SeqID]*Sequence{}, parked: true,
				batches: make([]*tokenBatch, len(e.shards)),
			}
		},
		OnFailure: failed,
	})
	if err != nil {
		return err
	}
	e.scheduled(core.Stats())
	e.pipe.Store(p)
	return nil
}
