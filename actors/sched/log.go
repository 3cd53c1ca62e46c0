package sched

import (
	"fmt"
	"strings"
	"time"
)

// Event is one call of a Core, as its log keeps it.
type Event struct {
	// Op names the call: admit, abort, stopped, next, publish, done, bound, void,
	// calibrate.
	Op string
	// Sequence is admit's; Params is left out.
	Sequence Sequence
	// ID is abort's and stopped's.
	ID SeqID
	// Step is done's and bound's.
	Step StepID
	// Version is the plan of publish (0: none), bound and void.
	Version uint64
	// Results and Elapsed are done's; calibrate uses Start, Len and Elapsed.
	Results    []Result
	Elapsed    time.Duration
	Start, Len int
	// Plan is what next returned, as Describe writes it.
	Plan string
}

// Record makes f hear of every call from now on, in order; nil ends it. The
// events share nothing that the core changes later.
func (c *Core) Record(f func(Event)) { c.record = f }

func (c *Core) note(e Event) {
	if c.record != nil {
		c.record(e)
	}
}

// Describe writes a plan for logs and scenarios: one line per row, then what it
// would evict or preempt.
func (p *Plan) Describe() string {
	if p == nil {
		return "nothing\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "plan %d after %d\n", p.Version, p.After)
	for i := range p.Rows {
		r := &p.Rows[i]
		fmt.Fprintf(&b, "  seq %d [%d,%d)", r.Seq, r.Start, r.Start+r.Len)
		if r.From >= 0 {
			fmt.Fprintf(&b, " input from row %d", r.From)
		}
		if r.Sample {
			b.WriteString(" sample")
		}
		if r.PromptLogits {
			b.WriteString(" prompt-logits")
		}
		fmt.Fprintf(&b, " blocks %v\n", r.Blocks)
	}
	for _, a := range p.admits {
		fmt.Fprintf(&b, "  admits seq %d with %d cached blocks\n", p.Rows[a.row].Seq, a.hits)
	}
	if len(p.preempts) > 0 {
		fmt.Fprintf(&b, "  preempts %v\n", p.preempts)
	}
	return b.String()
}

// Replay repeats a log on a fresh core and returns it. It fails at the first
// call that errs or proposes another plan than the log has.
func Replay(cfg Config, log []Event) (*Core, error) {
	c, err := New(cfg)
	if err != nil {
		return nil, err
	}
	plans := map[uint64]*Plan{}
	for i, e := range log {
		switch e.Op {
		case "admit":
			err = c.Admit(e.Sequence)
		case "abort":
			c.Abort(e.ID)
		case "stopped":
			c.Stopped(e.ID)
		case "next":
			p := c.Next()
			if got := p.Describe(); got != e.Plan {
				return c, fmt.Errorf("sched: replay: event %d: plan differs\ngot  %swant %s", i, got, e.Plan)
			}
			if p != nil {
				plans[p.Version] = p
			}
		case "publish":
			c.Publish(plans[e.Version])
		case "done":
			_, err = c.Done(e.Step, e.Results, e.Elapsed, nil)
		case "bound":
			_, err = c.Bound(e.Step, e.Version)
		case "void":
			c.Void(e.Version)
		case "calibrate":
			c.Calibrate(e.Start, e.Len, e.Elapsed)
		default:
			err = fmt.Errorf("unknown call %q", e.Op)
		}
		if err != nil {
			return c, fmt.Errorf("sched: replay: event %d: %w", i, err)
		}
	}
	return c, nil
}
