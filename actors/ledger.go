package actors

import "waybill/actors/waybill"

// ledgerActor takes finished waybills: it feeds the histograms, prints a line for
// each with VT_TTFT_DUMP=1, logs and traces it. Nothing it calls blocks.
type ledgerActor struct {
	engine *Engine
	line   []byte
}

// Receive books one finished sequence.
func (a *ledgerActor) Receive(m any) {
	if !waybill.Observing {
		return
	}
	s := m.(*Sequence)
	e := a.engine
	split := s.Bill.Split()
	e.metrics.finished(s, &split)
	e.exemplars.add(newRecord(s, split))
	if w := e.cfg.Dump; w != nil {
		a.line = s.Bill.AppendDump(a.line[:0])
		_, _ = w.Write(a.line)
	}
	if e.cfg.Log != nil {
		logSequence(e.cfg.Log, s, &split)
	}
	if e.cfg.Tracer != nil {
		traceSequence(e.cfg.Tracer, e.cfg.ModelName, s, &split)
	}
}

// Drained does nothing.
func (a *ledgerActor) Drained() {}

// book hands a waybill to the Ledger if both its sides are done.
func (e *Engine) book(s *Sequence, side int32) {
	if s.Bill.Finish(side) {
		e.registry.remove(s)
		if s.req.invalid.Load() {
			return
		}
		if !e.ledger.Tell(s) {
			e.metrics.ledgerDropped.Add(1)
		}
	}
}

// ResponseDone says that the connection is done with a request: idle again, or
// closed. It may be called more than once. Any goroutine.
func (r *Request) ResponseDone(e *Engine) {
	for _, s := range r.seqs {
		e.book(s, waybill.ResponseSide)
	}
}
