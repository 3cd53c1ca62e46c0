package actors

import (
	"io"
	"sync/atomic"

	"waybill/actors/waybill"
)

// ledgerActor takes finished waybills: it feeds the histograms and, with
// VT_TTFT_DUMP=1, prints a line for each.
type ledgerActor struct {
	engine *Engine
	dump   *dumpWriter // nil: no dump
	line   []byte
}

// Receive books one finished sequence.
func (a *ledgerActor) Receive(m any) {
	s := m.(*Sequence)
	e := a.engine
	split := s.Bill.Split()
	e.metrics.finished(s, &split)
	if a.dump != nil {
		a.line = s.Bill.AppendDump(a.line[:0])
		a.dump.line(a.line)
	}
}

// Drained does nothing.
func (a *ledgerActor) Drained() {}

// dumpWriter writes whole lines from a goroutine of its own, so that a blocked
// stderr holds neither a request nor the histograms.
type dumpWriter struct {
	lines   chan []byte
	dropped atomic.Int64
	done    chan struct{}
}

func newDumpWriter(w io.Writer) *dumpWriter {
	d := &dumpWriter{lines: make(chan []byte, dumpLines), done: make(chan struct{})}
	go func() {
		defer close(d.done)
		for l := range d.lines {
			if _, err := w.Write(l); err != nil {
				d.dropped.Add(1)
			}
		}
	}()
	return d
}

// line queues a copy of l, or drops and counts it.
func (d *dumpWriter) line(l []byte) {
	select {
	case d.lines <- append([]byte(nil), l...):
	default:
		d.dropped.Add(1)
	}
}

// close writes what is queued and ends the goroutine.
func (d *dumpWriter) close() {
	close(d.lines)
	<-d.done
}

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
