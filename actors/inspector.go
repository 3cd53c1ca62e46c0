package actors

import (
	"encoding/json"
	"errors"
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
