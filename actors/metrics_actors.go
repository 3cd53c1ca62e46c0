package actors

import (
	"github.com/prometheus/client_golang/prometheus"

	"waybill/actors/mailbox"
)

// actorBuckets bound mailbox waits and handler times, in seconds: from a
// hand-off within a core to a stuck handler.
var actorBuckets = []float64{1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, .1, .25, .5, 1, 2.5, 10}

// actorCollector reads the actors' own counters at a scrape; it asks no actor
// and waits for nobody.
type actorCollector struct {
	system *mailbox.System

	depth, messages, refused, dropped, panics, restarts, wait, handle, decide *prometheus.Desc
}

func newActorCollector(s *mailbox.System, labels prometheus.Labels) *actorCollector {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("waybill:actor_"+name, help, []string{"kind"}, labels)
	}
	return &actorCollector{
		system:   s,
		depth:    desc("mailbox_depth", "Messages waiting, by kind of actor."),
		messages: desc("messages_total", "Messages handled."),
		refused:  desc("refused_total", "Messages refused by a full or ended mailbox."),
		dropped:  desc("dropped_total", "Messages that an ended actor never handled."),
		panics:   desc("panics_total", "Actor failures."),
		restarts: desc("restarts_total", "Restarts after a failure."),
		wait:     desc("mailbox_wait_seconds", "Time from posting a message to handling it."),
		handle:   desc("handler_seconds", "Time spent handling one message."),
		decide:   desc("decide_seconds", "Time spent deciding once no message waits."),
	}
}

// Describe implements prometheus.Collector.
func (c *actorCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.depth, c.messages, c.refused, c.dropped, c.panics, c.restarts, c.wait, c.handle, c.decide} {
		out <- d
	}
}

// kindSums adds up the actors of one kind.
type kindSums struct {
	depth, handled, refused, dropped, panics, restarts float64
	wait, handle, decide                               histSum
}

// histSum adds up histograms.
type histSum struct {
	count   uint64
	sum     float64
	buckets []uint64
}

func (h *histSum) add(x *mailbox.Hist, bounds []int64) {
	h.count += uint64(x.Count())
	h.sum += float64(x.Sum()) / 1e9
	counts := x.Cumulative(bounds)
	if h.buckets == nil {
		h.buckets = counts
		return
	}
	for i, n := range counts {
		h.buckets[i] += n
	}
}

func (h *histSum) metric(d *prometheus.Desc, kind string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(actorBuckets))
	for i, b := range actorBuckets {
		buckets[b] = min(h.buckets[i], h.count) // counters move while they are read
	}
	return prometheus.MustNewConstHistogram(d, h.count, h.sum, buckets, kind)
}

// Collect implements prometheus.Collector.
func (c *actorCollector) Collect(out chan<- prometheus.Metric) {
	bounds := make([]int64, len(actorBuckets))
	for i, b := range actorBuckets {
		bounds[i] = int64(b * 1e9)
	}
	kinds := map[string]*kindSums{}
	for _, i := range c.system.Table() {
		k := kinds[i.Kind]
		if k == nil {
			k = &kindSums{}
			kinds[i.Kind] = k
		}
		k.depth += float64(i.Depth)
		k.handled += float64(i.Handled)
		k.refused += float64(i.Refused)
		k.dropped += float64(i.Dropped)
		k.panics += float64(i.Panics)
		k.restarts += float64(i.Restarts)
		k.wait.add(i.Wait, bounds)
		k.handle.add(i.Handle, bounds)
		k.decide.add(i.Drain, bounds)
	}
	for kind, k := range kinds {
		out <- prometheus.MustNewConstMetric(c.depth, prometheus.GaugeValue, k.depth, kind)
		for _, m := range []struct {
			d *prometheus.Desc
			v float64
		}{{c.messages, k.handled}, {c.refused, k.refused}, {c.dropped, k.dropped}, {c.panics, k.panics}, {c.restarts, k.restarts}} {
			out <- prometheus.MustNewConstMetric(m.d, prometheus.CounterValue, m.v, kind)
		}
		out <- k.wait.metric(c.wait, kind)
		out <- k.handle.metric(c.handle, kind)
		out <- k.decide.metric(c.decide, kind)
	}
}
