package actors

import (
	"encoding/json"
	"errors"
	"runtime"
	"sync"
	"time"

	"waybill/actors/mailbox"
	"waybill/actors/waybill"
)

// ErrTooManyViewers is returned by Watch when every place is taken.
var ErrTooManyViewers = errors.New("too many consoles are open: close one and try again")

// Watcher is one viewer's subscription.
type Watcher struct {
	engine *Engine
	// Updates brings encoded snapshots; one that is not taken in time is replaced
	// by the next. Read-only slices.
	Updates chan []byte
	close   sync.Once
}

// Watch subscribes a viewer; sampling begins with the first one and ends with the
// last. Close must be called. Any goroutine.
func (e *Engine) Watch() (*Watcher, error) {
	if e.viewers.Add(1) > maxViewers {
		e.viewers.Add(-1)
		e.metrics.viewersRefused.Add(1)
		return nil, ErrTooManyViewers
	}
	w := &Watcher{engine: e, Updates: make(chan []byte, 1)}
	e.inspector.Tell(subscribe{w})
	return w, nil
}

// Close ends the subscription.
func (w *Watcher) Close() {
	w.close.Do(func() { w.engine.inspector.Tell(unsubscribe{w}) })
}

// Sample returns one encoded snapshot without a subscription. Rates in it are
// over the interval of the viewers there are, or absent. Any goroutine.
func (e *Engine) Sample() ([]byte, error) {
	w, err := e.Watch()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	select {
	case b := <-w.Updates:
		return b, nil
	case <-time.After(samplePatience):
		return nil, errors.New("the inspector does not answer")
	}
}

// inspectorActor samples the actor system while somebody watches, and only then.
type inspectorActor struct {
	engine *Engine
	ref    *mailbox.Ref

	viewers map[*Watcher]struct{}
	timer   *time.Timer // the next tick; nil while nobody watches
	began   int64       // of this watch
	last    int64       // sample before
	samples int64
	spent   []int64 // nanoseconds of the samples of the last seconds
	bytes   int

	windows map[string]*actorWindows
	steps   counters
	writes  [2]mailbox.Window
	prefix  counters
	runtime runtimeWindow
}

// actorWindows are one actor's counts at the sample before.
type actorWindows struct{ wait, hand, drain mailbox.Window }

// counters are two totals at the sample before.
type counters struct{ a, b int64 }

// diff returns how much both have grown, and keeps them.
func (c *counters) diff(a, b int64) (da, db int64) {
	da, db = a-c.a, b-c.b
	c.a, c.b = a, b
	return da, db
}

// Receive handles viewers that come and go, and the time for a sample.
func (a *inspectorActor) Receive(m any) {
	switch m := m.(type) {
	case subscribe:
		if len(a.viewers) == 0 {
			a.start()
		}
		a.viewers[m.w] = struct{}{}
		// The first picture at once. The others see it too: their interval is shorter.
		a.sample()
	case unsubscribe:
		// Its place is free only now: two messages for each place is all the ring has
		// to hold, however fast viewers come and go.
		a.engine.viewers.Add(-1)
		if delete(a.viewers, m.w); len(a.viewers) == 0 && a.timer != nil {
			a.timer.Stop()
			a.timer = nil
			a.engine.lane.on.Store(false)
			a.engine.lane.take()
		}
	case sampleNow:
		if a.timer != nil {
			a.timer.Reset(sampleInterval)
			a.sample()
		}
	}
}

// Drained does nothing.
func (a *inspectorActor) Drained() {}

// start begins a watch: what was counted before it is not in its rates.
func (a *inspectorActor) start() {
	a.engine.lane.on.Store(true)
	a.began, a.last, a.spent = waybill.Now(), 0, nil
	a.windows = map[string]*actorWindows{}
	a.timer = time.AfterFunc(sampleInterval, func() { a.ref.Tell(sampleNow{}) })
}

// sample takes a snapshot, encodes it once and gives it to everybody.
func (a *inspectorActor) sample() {
	from := waybill.Now()
	v := a.snapshot(from)
	b, err := json.Marshal(v)
	if err != nil {
		panic("BUG: snapshot: " + err.Error())
	}
	a.bytes, a.last = len(b), from
	a.samples++
	for w := range a.viewers {
		select {
		case <-w.Updates: // it was not taken: the new one replaces it
		default:
		}
		w.Updates <- b
	}
	if a.spent = append(a.spent, waybill.Now()-from); len(a.spent) > costWindow {
		a.spent = a.spent[1:]
	}
}

// cost sums up what watching has cost lately.
func (a *inspectorActor) cost(now int64) CostView {
	c := CostView{Viewers: len(a.viewers), MaxViewers: maxViewers, Bytes: a.bytes, Samples: a.samples}
	if n := len(a.spent); n > 1 {
		var sum int64
		for _, ns := range a.spent {
			sum += ns
		}
		seconds := min(float64(now-a.began)/1e9, float64(n)*sampleInterval.Seconds())
		c.SamplesPS, c.MsPerS = float64(n)/seconds, float64(sum)/1e6/seconds
	}
	return c
}

// snapshot puts the sample together. Everything it reads is an atomic or a copy
// under a lock of microseconds: it waits for no actor and no step.
func (a *inspectorActor) snapshot(now int64) *Snapshot {
	e := a.engine
	m := e.metrics
	interval := float64(now-a.last) / 1e9
	if a.last == 0 {
		interval = 0
	}
	s := &Snapshot{
		At: unixMs(now), IntervalMs: interval * 1e3, UptimeS: float64(now-e.startedAt) / 1e9, Model: e.cfg.ModelName,
		Ready: true, Actions: e.cfg.ConsoleActions,
		Restarts: e.restarts.timeline(), Stuck: e.stuck.incidents(), Steps: e.lane.take(), Cost: a.cost(now),
		Places: PlacesView{
			Used: e.places.seqs.Load(), Limit: e.places.maxSeqs, Waiting: m.waiting.Load(), Running: m.running.Load(),
		},
		Dropped: e.droppedView(), GPU: e.gpuView(),
	}
	s.Places.Intake = max(0, s.Places.Used-s.Places.Waiting-s.Places.Running)
	if err := e.Ready(); err != nil {
		s.Ready, s.NotReady = false, err.Error()
	}
	a.actors(s, now, interval)
	a.requests(s, now)
	a.memory(s)
	s.Runtime = a.runtime.view()
	return s
}

// pipelineKinds are the stages in the order of a request's way.
var pipelineKinds = []string{"intake", "scheduler", "gpu-step", "detokenizer", "sse-writer"}

// actors fills the table and sums it up by stage.
func (a *inspectorActor) actors(s *Snapshot, now int64, interval float64) {
	stages := map[string]*StageView{}
	for _, kind := range pipelineKinds {
		stages[kind] = &StageView{Kind: kind, State: "idle"}
	}
	for _, i := range a.engine.system.Table() {
		w := a.windows[i.Name]
		if w == nil {
			w = &actorWindows{}
			a.windows[i.Name] = w
		}
		wait, hand, drain := i.Wait.Since(&w.wait), i.Handle.Since(&w.hand), i.Drain.Since(&w.drain)
		v := ActorView{
			Name: i.Name, Kind: i.Kind, Depth: i.Depth, OldestMs: i.Oldest.Seconds() * 1e3,
			Handled: i.Handled, Refused: i.Refused, Dropped: i.Dropped, Panics: i.Panics, Restarts: i.Restarts,
			State: "idle", StateMs: i.Idle.Seconds() * 1e3, AgeS: i.Age.Seconds(),
		}
		if i.Name != "supervisor" {
			v.Parent = "supervisor"
		}
		if i.Current != "" {
			v.State, v.StateMs = i.Current, i.Busy.Seconds()*1e3
		}
		if interval > 0 {
			v.PerS = float64(wait.Count) / interval
			v.WaitP50Us, v.WaitP99Us = float64(wait.P50)/1e3, float64(wait.P99)/1e3
			v.HandleP50Us, v.HandleP99Us = float64(hand.P50)/1e3, float64(hand.P99)/1e3
			v.Utilisation = min(1, float64(hand.SumNs+drain.SumNs)/1e9/interval)
		}
		if i.Kind == "gpu-step" {
			a.stepThread(&v, s.Steps, now, interval)
		}
		s.Actors = append(s.Actors, v)
		if g := stages[i.Kind]; g != nil {
			g.add(&v)
		}
	}
	a.writers(stages["sse-writer"], interval)
	for _, kind := range pipelineKinds {
		g := stages[kind]
		g.Utilisation /= float64(max(g.Actors, 1))
		s.Pipeline = append(s.Pipeline, *g)
	}
}

// add counts an actor in. Quantiles are those of the worst of them.
func (g *StageView) add(v *ActorView) {
	g.Actors++
	g.Depth += v.Depth
	g.OldestMs = max(g.OldestMs, v.OldestMs)
	g.PerS += v.PerS
	g.WaitP50Us, g.WaitP99Us = max(g.WaitP50Us, v.WaitP50Us), max(g.WaitP99Us, v.WaitP99Us)
	g.HandleP50Us, g.HandleP99Us = max(g.HandleP50Us, v.HandleP50Us), max(g.HandleP99Us, v.HandleP99Us)
	g.Utilisation += v.Utilisation
	if v.State != "idle" || g.State == "idle" && (g.StateSinceMs == 0 || v.StateMs < g.StateSinceMs) {
		g.State, g.StateSinceMs = v.State, v.StateMs
	}
}

// stepThread corrects GPU-step's row: its handler runs step after step, so steps
// stand for messages.
func (a *inspectorActor) stepThread(v *ActorView, steps []StepView, now int64, interval float64) {
	m := a.engine.metrics
	n, ns := a.steps.diff(m.steps.Load(), m.stepNs.Load())
	if at := a.engine.inStep.Load(); at != 0 {
		v.State, v.StateMs = "step", float64(now-at)/1e6
	} else if v.State != "idle" {
		v.State = "between steps"
	}
	if interval == 0 {
		return
	}
	v.PerS, v.Utilisation = float64(n)/interval, min(1, float64(ns)/1e9/interval)
	var gaps, lengths []float64
	for _, s := range steps {
		gaps, lengths = append(gaps, s.GapUs), append(lengths, s.Ms*1e3)
	}
	v.WaitP50Us, v.WaitP99Us = quantiles(gaps)
	v.HandleP50Us, v.HandleP99Us = quantiles(lengths)
}

// writers describes the open responses, which have no mailbox of their own.
func (a *inspectorActor) writers(g *StageView, interval float64) {
	m := a.engine.metrics
	wait, write := m.writerWait.Since(&a.writes[0]), m.writerWrite.Since(&a.writes[1])
	if interval > 0 {
		g.PerS = float64(write.Count) / interval
		g.WaitP50Us, g.WaitP99Us = float64(wait.P50)/1e3, float64(wait.P99)/1e3
		g.HandleP50Us, g.HandleP99Us = float64(write.P50)/1e3, float64(write.P99)/1e3
		g.Utilisation = float64(write.SumNs) / 1e9 / interval
	}
}

// requests lists sequences under way and kept.
func (a *inspectorActor) requests(s *Snapshot, now int64) {
	e := a.engine
	s.Requests = RequestsView{Live: []RequestView{}, Recent: []RequestView{}, Slowest: []RequestView{}}
	writers := &s.Pipeline[len(s.Pipeline)-1]
	seen := map[*Writer]bool{}
	for _, q := range e.registry.snapshot() {
		s.Requests.Open++
		v := e.requestView(q, now)
		if !seen[q.req.writer] {
			seen[q.req.writer] = true
			writers.Actors++
			if v.Pending > 0 {
				writers.Depth++
				writers.OldestMs = max(writers.OldestMs, v.LagMs)
				writers.State, writers.StateSinceMs = "writing", writers.OldestMs
			}
		}
		if len(s.Requests.Live) < liveRequests {
			s.Requests.Live = append(s.Requests.Live, v)
		}
	}
	if writers.Actors > 0 {
		writers.Utilisation = min(1, writers.Utilisation/float64(writers.Actors))
	}
	recent, slowest := e.exemplars.lists(recentShown)
	for _, r := range recent {
		s.Requests.Recent = append(s.Requests.Recent, recordView(r))
	}
	for _, r := range slowest {
		s.Requests.Slowest = append(s.Requests.Slowest, recordView(r))
	}
}

// memory describes the KV cache.
func (a *inspectorActor) memory(s *Snapshot) {
	m := a.engine.metrics
	s.Memory = MemoryView{
		BlocksTotal: m.kvTotal.Load(), BlocksUsed: m.kvUsed.Load(), BlocksCached: m.kvCached.Load(), BlockTokens: a.engine.cfg.BlockSize,
		PrefixQueries: m.prefixQueries.Load(), PrefixHits: m.prefixHits.Load(), Preemptions: m.preemptions.Load(), HitRate: -1,
	}
	s.Memory.BlocksFree = s.Memory.BlocksTotal - s.Memory.BlocksUsed - s.Memory.BlocksCached
	if q, h := a.prefix.diff(s.Memory.PrefixQueries, s.Memory.PrefixHits); q > 0 {
		s.Memory.HitRate = float64(h) / float64(q)
	}
}

// droppedView counts what was refused or lost, by reason.
func (e *Engine) droppedView() DroppedView {
	m := e.metrics
	d := DroppedView{
		Requests: []CountView{
			{"refused: the server was full or draining", m.refused.Load()},
			{"invalid: answered with a 4xx", m.invalid.Load()},
			{"unreadable: cut off, too large, too slow or malformed", m.unreadable.Load()},
			{"aborted: the client went away or was too slow", m.ended[waybill.Abort].Load()},
			{"failed: the engine's error", m.ended[waybill.Error].Load()},
			{"consoles refused: too many open", m.viewersRefused.Load()},
		},
		Messages: []CountView{{"waybills lost by the ledger", m.ledgerDropped.Load()}},
	}
	if e.cfg.LinesDropped != nil {
		d.Messages = append(d.Messages, CountView{"dump and log lines lost to a slow stderr", e.cfg.LinesDropped()})
	}
	for _, i := range e.system.Table() {
		if i.Refused > 0 {
			d.Messages = append(d.Messages, CountView{i.Name + ": refused by a full or ended mailbox", i.Refused})
		}
		if i.Dropped > 0 {
			d.Messages = append(d.Messages, CountView{i.Name + ": never handled, the actor ended", i.Dropped})
		}
	}
	return d
}

// gpuView asks for telemetry, or says why there is none.
func (e *Engine) gpuView() GPUView {
	v := GPUView{Devices: []GPUInfo{}}
	if e.cfg.Telemetry == nil {
		v.Reason = "the engine computes on the CPU"
		if !e.cfg.OnCPU {
			v.Reason = "this binary was built without telemetry"
		}
		return v
	}
	devices, err := e.cfg.Telemetry()
	if err != nil {
		v.Reason = err.Error()
		return v
	}
	v.Available, v.Devices = true, devices
	return v
}

// procs returns GOMAXPROCS.
func procs() int { return runtime.GOMAXPROCS(0) }
