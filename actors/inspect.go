package actors

import (
	"errors"
	"strings"

	"waybill/actors/waybill"
)

// ErrUnknownActor is returned for a name that no live actor has.
var ErrUnknownActor = errors.New("no such actor is alive")

// Inspection is what one actor tells of itself.
type Inspection struct {
	Name   string      `json:"name" doc:"the actor's name; writer:<rid> for a response"`
	Kind   string      `json:"kind" doc:"its sort"`
	Fields []FieldView `json:"fields"`
	Stack  string      `json:"stack" doc:"its goroutine's stack now; empty for a writer"`
}

// FieldView is a typed key and value.
type FieldView struct {
	Key   string `json:"key" doc:"what it is"`
	Value any    `json:"value" doc:"number, string or boolean"`
	Unit  string `json:"unit" doc:"unit of a number; empty: a count"`
}

// Inspect reads one actor's figures, without asking the actor: they are atomics
// or copies under a lock of microseconds. Any goroutine.
func (e *Engine) Inspect(name string) (*Inspection, error) {
	if rid, ok := strings.CutPrefix(name, "writer:"); ok {
		return e.inspectWriter(rid)
	}
	for _, i := range e.system.Table() {
		if i.Name != name {
			continue
		}
		v := &Inspection{Name: i.Name, Kind: i.Kind, Stack: actorStack(i.Name)}
		v.add("messages waiting", i.Depth, "")
		v.add("oldest waits", i.Oldest.Seconds()*1e3, "ms")
		v.add("longest wait", float64(i.Wait.Max())/1e6, "ms")
		v.add("longest handler", float64(i.Handle.Max())/1e6, "ms")
		v.add("longest decision", float64(i.Drain.Max())/1e6, "ms")
		e.inspectKind(v, i.Kind)
		return v, nil
	}
	return nil, ErrUnknownActor
}

func (v *Inspection) add(key string, value any, unit string) {
	v.Fields = append(v.Fields, FieldView{key, value, unit})
}

// inspectKind adds what is particular to a kind.
func (e *Engine) inspectKind(v *Inspection, kind string) {
	m := e.metrics
	switch kind {
	case "scheduler":
		v.add("waiting", m.waiting.Load(), "sequences")
		v.add("running", m.running.Load(), "sequences")
		v.add("blocks used", m.kvUsed.Load(), "blocks")
		v.add("blocks cached", m.kvCached.Load(), "blocks")
		v.add("blocks", m.kvTotal.Load(), "blocks")
		v.add("preemptions", m.preemptions.Load(), "")
		if p := e.pipe.Load(); p != nil {
			v.add("epoch", p.epoch, "")
		}
		if plan := e.lane.plan.Load(); plan != nil {
			v.add("last plan: follows step", uint64(plan.after), "")
			v.add("last plan: rows", plan.rows, "sequences")
			v.add("last plan: prompt tokens", plan.prefill, "tokens")
			v.add("last plan: expected", float64(plan.expected)/1e6, "ms")
		}
	case "gpu-step":
		v.add("steps", m.steps.Load(), "")
		if n := m.steps.Load(); n > 0 {
			v.add("mean step", float64(m.stepNs.Load())/float64(n)/1e6, "ms")
		}
		if at := e.inStep.Load(); at != 0 {
			v.add("step in flight for", float64(waybill.Now()-at)/1e6, "ms")
		}
		v.add("device", e.deviceName(), "")
	case "intake":
		for _, a := range e.intakes {
			if a.ref != nil && a.ref.Name() == v.Name {
				v.add("requests in hand", a.load.Load(), "requests")
			}
		}
	case "detokenizer":
		v.add("tokens generated", m.generated.Load(), "tokens, all detokenizers")
	case "ledger":
		v.add("waybills lost", m.ledgerDropped.Load(), "")
	case "inspector":
		v.add("viewers", e.viewers.Load(), "")
	}
}

// deviceName says what computes.
func (e *Engine) deviceName() string {
	if e.cfg.OnCPU {
		return "cpu"
	}
	return "cuda"
}

// inspectWriter reads one response's figures.
func (e *Engine) inspectWriter(rid string) (*Inspection, error) {
	for _, s := range e.registry.snapshot() {
		if s.Bill.RID != rid && s.req.RID != rid {
			continue
		}
		now := waybill.Now()
		bytes, lag := s.req.writer.backlog(now)
		v := &Inspection{Name: "writer:" + s.req.RID, Kind: "sse-writer"}
		v.add("bytes pending", bytes, "bytes")
		v.add("client lag", float64(lag)/1e6, "ms")
		v.add("limit", writerLimit, "bytes")
		v.add("sequences", len(s.req.seqs), "")
		v.add("streamed", s.req.Stream, "")
		return v, nil
	}
	return nil, ErrUnknownRequest
}

// ActionsAllowed reports whether viewers may cancel and drain.
func (e *Engine) ActionsAllowed() bool { return e.cfg.ConsoleActions }

// Cancel ends the request with the given id, or that of one of its sequences, with
// an error for its client, and returns how many sequences that ended. Any
// goroutine.
func (e *Engine) Cancel(rid string) (n int) {
	for _, s := range e.registry.snapshot() {
		if s.Bill.RID != rid && s.req.RID != rid || s.Bill.Reason() != waybill.Running {
			continue
		}
		n += len(s.req.seqs)
		e.failSequence(s, &Failure{Status: 503, Type: "ServiceUnavailableError", Message: "the request was cancelled by the server's operator"})
		e.tellScheduler(abort{s})
	}
	return n
}
