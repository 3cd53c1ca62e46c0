package actors

import "waybill/actors/waybill"

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
