package actors

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime/pprof"
	"strings"
	"sync"
	"time"

	"waybill/actors/waybill"
)

// stuckDetector looks for handlers that run longer than they should. It stops
// nothing: it takes the goroutine's stack and says so once.
type stuckDetector struct {
	engine *Engine
	stop   chan struct{}
	done   chan struct{}

	mu   sync.Mutex // held for a change or a copy of the list
	list []StuckView
	open map[string]*openStuck // by actor
}

// openStuck is an incident that is not over.
type openStuck struct {
	since int64 // when the handler began
	index int64 // in the list, counted from the first ever
}

func (e *Engine) newStuckDetector() *stuckDetector {
	return &stuckDetector{engine: e, stop: make(chan struct{}), done: make(chan struct{}), open: map[string]*openStuck{}}
}

// run looks until close.
func (d *stuckDetector) run() {
	defer close(d.done)
	t := time.NewTicker(stuckLook)
	defer t.Stop()
	for {
		select {
		case <-d.stop:
			return
		case <-t.C:
			d.look(waybill.Now())
		}
	}
}

func (d *stuckDetector) close() {
	close(d.stop)
	<-d.done
}

// look compares every actor's message in hand with the threshold.
func (d *stuckDetector) look(now int64) {
	limit := d.engine.cfg.StuckAfter
	if limit == 0 {
		limit = stuckAfter
	}
	seen := map[string]bool{}
	for _, i := range d.engine.system.Table() {
		message, since := i.Current, now-int64(i.Busy)
		if i.Kind == "gpu-step" {
			// Its handler runs step after step: what may hang is one step.
			message, since = "step", d.engine.inStep.Load()
		}
		if message == "" || since == 0 || time.Duration(now-since) < limit {
			continue
		}
		seen[i.Name] = true
		d.note(i.Name, message, since, now)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, o := range d.open {
		if !seen[name] {
			d.over(o)
			delete(d.open, name)
		}
	}
}

// over ends an incident. mu is held.
func (d *stuckDetector) over(o *openStuck) {
	if v := d.at(o.index); v != nil {
		v.Over = true
	}
}

// at returns an entry of the list unless it has been pushed out. mu is held.
func (d *stuckDetector) at(index int64) *StuckView {
	if i := index - (d.total() - int64(len(d.list))); i >= 0 && i < int64(len(d.list)) {
		return &d.list[i]
	}
	return nil
}

func (d *stuckDetector) total() int64 { return d.engine.metrics.stuck.Load() }

// note books an incident, or how long it has lasted by now.
func (d *stuckDetector) note(actor, message string, since, now int64) {
	ms := float64(now-since) / 1e6
	d.mu.Lock()
	o := d.open[actor]
	// Busy is measured by two looks at two clocks: the same handler's start may
	// differ by a little.
	if o != nil && since-o.since < int64(stuckLook) {
		if v := d.at(o.index); v != nil {
			v.ForMs = ms
		}
		d.mu.Unlock()
		return
	}
	d.mu.Unlock()
	stack := actorStack(actor)
	d.mu.Lock()
	if o != nil {
		d.over(o) // no look fell between its end and this one
	}
	d.open[actor] = &openStuck{since: since, index: d.total()}
	d.engine.metrics.stuck.Add(1)
	d.list = append(d.list, StuckView{At: unixMs(now), Actor: actor, Message: message, ForMs: ms, Stack: stack})
	d.list = d.list[max(0, len(d.list)-stucksKept):]
	d.mu.Unlock()
	if log := d.engine.cfg.Log; log != nil {
		log.Warn("handler is stuck", slog.String("actor", actor), slog.String("message", message),
			slog.String("for", fmt.Sprintf("%.0fms", ms)), slog.String("at", topFrame(stack)))
	}
}

// incidents returns a copy of the list, newest first.
func (d *stuckDetector) incidents() []StuckView {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]StuckView, 0, len(d.list))
	for i := len(d.list) - 1; i >= 0; i-- {
		out = append(out, d.list[i])
	}
	return out
}

// actorStack returns the stack of the goroutine that carries the actor's name as
// a profiler label, or why there is none.
func actorStack(actor string) string {
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
		return err.Error()
	}
	label := fmt.Sprintf(`"actor":%q`, actor)
	for _, record := range strings.Split(b.String(), "\n\n") {
		if !strings.Contains(record, label) {
			continue
		}
		var out strings.Builder
		for _, line := range strings.Split(record, "\n") {
			// "#	0x47a1b2	time.Sleep+0x52	file.go:195"
			if f := strings.Split(line, "\t"); len(f) >= 4 && f[0] == "#" {
				fmt.Fprintf(&out, "%s\n\t%s\n", f[2], f[len(f)-1])
			}
		}
		return out.String()
	}
	return "its goroutine has no stack to show: it has just ended"
}

// topFrame returns the innermost function of a stack that is not the runtime's.
func topFrame(stack string) string {
	for _, line := range strings.Split(stack, "\n") {
		if line != "" && line[0] != '\t' && !strings.HasPrefix(line, "runtime.") && !strings.HasPrefix(line, "time.") {
			return line
		}
	}
	return ""
}
