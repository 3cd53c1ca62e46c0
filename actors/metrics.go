package actors

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"waybill/actors/waybill"
)

// Histogram bounds: vLLM's own values with finer ones added below, where a
// server on one machine spends its time. In seconds.
var (
	ttftBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	itlBuckets  = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	e2eBuckets  = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .2, .3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
)

// engineMetrics are the engine's series, under vLLM's names where vLLM has the
// same thing.
type engineMetrics struct {
	registry *prometheus.Registry

	ttft, itl, tpot, e2e, queue, prefill, decode, inference prometheus.Histogram
	promptTokens, cachedTokens                              prometheus.Counter
	success                                                 [5]prometheus.Counter
	phase                                                   map[waybill.Part]prometheus.Observer
	stepSeconds                                             prometheus.Histogram

	generated     atomic.Int64
	preemptions   atomic.Int64
	prefixQueries atomic.Int64
	prefixHits    atomic.Int64
	running       atomic.Int64
	waiting       atomic.Int64
	kvUsed        atomic.Int64 // blocks
	kvTotal       atomic.Int64
	ledgerDropped atomic.Int64
	rebuilds      atomic.Int64
	received      atomic.Int64
	invalid       atomic.Int64
	refused       atomic.Int64
	admitted      atomic.Int64
}

func newEngineMetrics(e *Engine) *engineMetrics {
	m := &engineMetrics{registry: prometheus.NewRegistry(), phase: map[waybill.Part]prometheus.Observer{}}
	labels := prometheus.Labels{"model_name": e.cfg.ModelName, "engine": "0"}
	reg := prometheus.WrapRegistererWith(labels, m.registry)
	hist := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
		reg.MustRegister(h)
		return h
	}
	m.ttft = hist("vllm:time_to_first_token_seconds", "Time from the request's first byte to the first text written.", ttftBuckets)
	m.itl = hist("vllm:inter_token_latency_seconds", "Gap between two tokens of a sequence on the host.", itlBuckets)
	m.tpot = hist("vllm:request_time_per_output_token_seconds", "Mean time per output token after the first, per sequence.", itlBuckets)
	m.e2e = hist("vllm:e2e_request_latency_seconds", "Time from the request's first byte to the last byte written.", e2eBuckets)
	m.queue = hist("vllm:request_queue_time_seconds", "Time from queued to scheduled.", e2eBuckets)
	m.prefill = hist("vllm:request_prefill_time_seconds", "Time from scheduled to the first token.", e2eBuckets)
	m.decode = hist("vllm:request_decode_time_seconds", "Time from the first to the last token.", e2eBuckets)
	m.inference = hist("vllm:request_inference_time_seconds", "Time from scheduled to the last token.", e2eBuckets)
	m.stepSeconds = hist("waybill:step_seconds", "Length of an engine step, launch to tokens on the host.", itlBuckets)
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		reg.MustRegister(c)
		return c
	}
	m.promptTokens = counter("vllm:prompt_tokens_total", "Prompt tokens of finished sequences.")
	m.cachedTokens = counter("vllm:prompt_tokens_cached_total", "Prompt tokens that the prefix cache spared, once per sequence.")
	success := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "vllm:request_success_total", Help: "Ended sequences by reason."}, []string{"finished_reason"})
	reg.MustRegister(success)
	for r := waybill.Stop; r <= waybill.Error; r++ {
		m.success[r] = success.WithLabelValues(r.String())
	}
	phase := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "waybill:request_phase_seconds", Help: "Parts of a request's time; intake + queued + prefill + egress is the time to first token.", Buckets: e2eBuckets,
	}, []string{"phase"})
	reg.MustRegister(phase)
	for _, p := range waybill.Parts() {
		m.phase[p] = phase.WithLabelValues(p.String())
	}
	m.registerFuncs(reg, e)
	return m
}

// registerFuncs registers the series that are read from atomics at a scrape.
func (m *engineMetrics) registerFuncs(reg prometheus.Registerer, e *Engine) {
	gauge := func(name, help string, f func() float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f))
	}
	total := func(name, help string, v *atomic.Int64) {
		reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(v.Load()) }))
	}
	gauge("vllm:num_requests_running", "Sequences in execution.", func() float64 { return float64(m.running.Load()) })
	gauge("vllm:num_requests_waiting", "Sequences admitted and waiting.", func() float64 { return float64(m.waiting.Load()) })
	gauge("waybill:num_requests_intake", "Sequences accepted and not queued yet.", func() float64 {
		return float64(max(0, e.places.seqs.Load()-m.running.Load()-m.waiting.Load()))
	})
	gauge("waybill:places_in_use", "Accepted sequences that have not given their place back.", func() float64 { return float64(e.places.seqs.Load()) })
	gauge("vllm:kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1.", func() float64 {
		return float64(m.kvUsed.Load()) / float64(max(m.kvTotal.Load(), 1))
	})
	total("vllm:generation_tokens_total", "Tokens generated.", &m.generated)
	total("vllm:num_preemptions_total", "Sequences that lost their KV blocks to others.", &m.preemptions)
	total("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache, once per sequence.", &m.prefixQueries)
	total("vllm:prefix_cache_hits_total", "Prompt tokens found there.", &m.prefixHits)
	total("waybill:requests_received_total", "Sequences asked for by complete requests.", &m.received)
	total("waybill:requests_invalid_total", "Sequences of requests answered with a 4xx for what they say.", &m.invalid)
	total("waybill:requests_refused_total", "Sequences refused because the server was full or draining.", &m.refused)
	total("waybill:requests_admitted_total", "Sequences accepted.", &m.admitted)
	total("waybill:ledger_dropped_total", "Waybills lost because the Ledger was too far behind.", &m.ledgerDropped)
	total("waybill:pipeline_rebuilds_total", "Rebuilds of Scheduler and GPU-step after a failure.", &m.rebuilds)
}

// interToken observes one gap.
func (m *engineMetrics) interToken(ns int64) { m.itl.Observe(float64(ns) / 1e9) }

// step observes a finished step.
func (m *engineMetrics) step(rows int, ns int64) {
	if rows > 0 {
		m.stepSeconds.Observe(float64(ns) / 1e9)
	}
}

// finished observes a complete waybill. A part that was not reached is no
// sample.
func (m *engineMetrics) finished(s *Sequence, split *waybill.Split) {
	b := s.Bill
	m.success[split.Reason].Inc()
	m.promptTokens.Add(float64(b.PromptTokens.Load()))
	m.cachedTokens.Add(float64(b.CachedTokens.Load()))
	for p, o := range m.phase {
		if split.Has(p) {
			o.Observe(split.Seconds(p))
		}
	}
	seen := func(h prometheus.Histogram, p waybill.Part) {
		if split.Has(p) {
			h.Observe(split.Seconds(p))
		}
	}
	seen(m.e2e, waybill.E2E)
	if b.At(waybill.Scheduled) != 0 {
		seen(m.queue, waybill.Queue)
	}
	first := b.At(waybill.FirstToken)
	if first == 0 {
		return
	}
	seen(m.prefill, waybill.Prefill)
	seen(m.decode, waybill.Decode)
	if split.Has(waybill.TTFT) {
		seen(m.ttft, waybill.TTFT)
	} else if text := b.At(waybill.FirstText); text != 0 && !b.Stream {
		m.ttft.Observe(float64(text-b.At(waybill.Arrived)) / 1e9)
	}
	if last := b.At(waybill.LastToken); last != 0 {
		m.inference.Observe(float64(last-b.At(waybill.Scheduled)) / 1e9)
		if n := b.OutputTokens.Load(); n > 1 {
			m.tpot.Observe(float64(last-first) / 1e9 / float64(n-1))
		}
	}
}
