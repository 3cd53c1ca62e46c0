package actors

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"waybill/actors/mailbox"
	"waybill/actors/sched"
	"waybill/actors/waybill"
	"waybill/model/sampling"
)

// This file is what httpapi calls.

// ErrDraining is returned by Reserve once the server no longer takes requests.
var ErrDraining = errors.New("the server is shutting down")

// ErrNotReady is returned by Ready while the pipeline is being rebuilt; requests are taken meanwhile.
var ErrNotReady = errors.New("the engine is recovering from a failure")

// Received counts n sequences that a complete request asked for.
func (e *Engine) Received(n int) { e.metrics.received.Add(int64(n)) }

// Invalid counts n sequences of a request that is answered with a 4xx for what it says.
func (e *Engine) Invalid(n int) { e.metrics.invalid.Add(int64(n)) }

// Unreadable counts a request that could not be read to its end.
func (e *Engine) Unreadable() { e.metrics.unreadable.Add(1) }

// NotAccepted counts a try to accept a connection that the system had no descriptor or
// memory for.
func (e *Engine) NotAccepted() { e.metrics.notAccepted.Add(1) }

// Reserve takes places for n sequences whose prompts have about tokens tokens,
// or refuses at once: ErrOverloaded, ErrDraining. Any goroutine.
func (e *Engine) Reserve(n, tokens int) (*Places, error) {
	var err error = ErrDraining
	if !e.draining.Load() && !e.dead.Load() {
		var p *Places
		if p, err = e.places.reserve(int64(n), int64(tokens)); err == nil {
			e.metrics.admitted.Add(int64(n))
			return p, nil
		}
	}
	e.metrics.refused.Add(int64(n))
	return nil, err
}

// Submit sends a request on its way and returns the writer of its answer. From
// now on the request ends in exactly one terminal event. The caller must call
// ResponseDone when the connection is done with it.
func (e *Engine) Submit(r *Request) *Writer {
	n := len(r.Prompts) * r.N
	r.seqs = make([]*Sequence, n)
	for i := range r.seqs {
		bill := &waybill.Waybill{RID: r.RID, Stream: r.Stream}
		if n > 1 {
			bill.RID = fmt.Sprintf("%s/%d", r.RID, i)
		}
		bill.CopyIntake(r.Proto)
		r.seqs[i] = &Sequence{
			ID: sched.SeqID(e.nextID.Add(1)), Index: i, Bill: bill, req: r,
		}
	}
	for _, s := range r.seqs {
		s.shard = e.shards[e.shardIndex(s)]
	}
	r.Places.share(r.seqs)
	r.writer = newWriter(e, r, e.cfg.KeepAlive)
	e.registry.add(r.seqs)
	if e.dead.Load() {
		e.refuse(r, errInternal)
		return r.writer
	}
	least := e.intakes[0]
	for _, a := range e.intakes[1:] {
		if a.load.Load() < least.load.Load() {
			least = a
		}
	}
	least.load.Add(1)
	if !least.ref.Tell(&intakeWork{r}) {
		least.load.Add(-1)
		e.refuse(r, errInternal)
	}
	return r.writer
}

// Abort ends a request whose client is gone or too slow. Any goroutine; it may
// be called at any time after Submit, and again.
func (e *Engine) Abort(r *Request) {
	now := waybill.Now()
	for _, s := range r.seqs {
		if s.Bill.End(waybill.Abort, now) {
			s.tellEnd()
			e.tellScheduler(abort{s})
		}
	}
}

// HungUp stamps the moment at which a request's peer was seen gone and aborts it.
func (e *Engine) HungUp(r *Request) {
	now := waybill.Now()
	for _, s := range r.seqs {
		s.Bill.Stamp(waybill.HungUp, now)
	}
	e.Abort(r)
}

// Ready reports whether a new request would be served: nil, or why not.
func (e *Engine) Ready() error {
	switch {
	case e.dead.Load():
		return errors.New("the engine has failed")
	case e.draining.Load():
		return ErrDraining
	case e.rebuilding.Load():
		return ErrNotReady
	case !e.ready.Load():
		return errors.New("the engine is warming up")
	}
	return nil
}

// Healthy reports whether the engine makes progress: an error names the age of a
// step that hangs, or how long steps have been waiting for a Detokenizer. It runs no request and waits for nobody.
func (e *Engine) Healthy() error {
	if e.dead.Load() {
		return errors.New("the engine has failed")
	}
	limit := e.cfg.StallAfter
	if limit == 0 {
		limit = stallAfter
	}
	if age := e.stepAge(); age > limit {
		return fmt.Errorf("a step has been running for %v", age.Round(time.Millisecond))
	}
	if age := since(e.heldSince.Load()); age > limit {
		return fmt.Errorf("steps have been waiting for a detokenizer for %v", age.Round(time.Millisecond))
	}
	return nil
}

// stepAge returns how long the step in flight has been running; 0 at rest.
func (e *Engine) stepAge() time.Duration { return since(e.inStep.Load()) }

// since returns how long ago at was; 0 for 0.
func since(at int64) time.Duration {
	if at == 0 {
		return 0
	}
	return time.Duration(waybill.Now() - at)
}

// Drain refuses new requests from now on. Those under way go on.
func (e *Engine) Drain() { e.draining.Store(true) }

// Wait returns when no request is under way, or with ctx's error.
func (e *Engine) Wait(ctx context.Context) error {
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for e.registry.count() > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
	}
	return nil
}

// CutAll ends all requests with an error event.
func (e *Engine) CutAll() {
	for _, s := range e.registry.snapshot() {
		e.failSequence(s, &Failure{Status: 503, Type: "ServiceUnavailableError", Message: "the server is shutting down"})
		e.tellScheduler(abort{s})
	}
}

// Close stops all actors. No request may be under way.
func (e *Engine) Close() error {
	p := e.pipe.Load()
	<-p.sched.Stop()
	<-p.gpu.Stop()
	for _, a := range e.intakes {
		<-a.ref.Stop()
	}
	for _, s := range e.shards {
		<-s.StopWhenDrained()
	}
	<-e.ledger.StopWhenDrained()
	<-e.inspector.Stop()
	e.stuck.close()
	<-e.super.Stop()
	return e.exec.Close()
}

// Gatherer returns the engine's metrics.
func (e *Engine) Gatherer() prometheus.Gatherer { return e.metrics.registry }

// Actors returns a snapshot of all live actors.
func (e *Engine) Actors() []mailbox.Info { return e.system.Table() }

// Load returns the places in use and their bound.
func (e *Engine) Load() (used, limit int) { return int(e.places.seqs.Load()), int(e.places.maxSeqs) }

// MaxModelLen returns the bound of prompt and output, in tokens.
func (e *Engine) MaxModelLen() int { return e.cfg.MaxModelLen }

// VocabSize returns the number of token ids that the model knows.
func (e *Engine) VocabSize() int { return e.model.Config().VocabSize }

// Tokenize returns the ids of text.
func (e *Engine) Tokenize(text string, o EncodeOptions) []int32 { return e.tok.Encode(nil, text, o) }

// Detokenize returns the text of ids.
func (e *Engine) Detokenize(ids []int32, skipSpecial bool) string {
	return e.tok.Decode(ids, skipSpecial)
}

// TokenText returns the bytes that one token stands for.
func (e *Engine) TokenText(id int32) string { return e.tok.TokenText(id) }

// CheckSampling returns an error about the client's values, or nil.
func (e *Engine) CheckSampling(o SamplingOptions) error {
	_, err := sampling.New(o, e.VocabSize())
	return err
}
