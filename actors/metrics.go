package actors

import (
	"runtime"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"waybill/actors/mailbox"
	"waybill/actors/waybill"
)

// Histogram bounds: vLLM's own values with finer ones added below, where a
// server on one machine spends its time. In seconds.
var (
	ttftBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	itlBuckets  = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	e2eBuckets  = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .2, .3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	stepTokens  = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
	idleBuckets = []float64{2e-6, 4e-6, 6e-6, 8e-6, 1e-5, 1.2e-5, 1.5e-5, 2e-5, 2.5e-5, 3e-5, 4e-5, 5e-5, 7.5e-5, .0001, .00015, .00025, .0005, .001, .0025, .01}
	gapBuckets  = []float64{1e-6, 2.5e-6, 5e-6, 1e-5, 1.5e-5, 2.5e-5, 5e-5, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1}
	waitBuckets = []float64{.05, .1, .15, .2, .25, .3, .35, .4, .45, .5, .55, .6, .65, .7, .75, .8, .85, .9, .95, 1, 1.1, 1.25, 1.5, 2, 3, 5, 10, 20, 50}
	fewBuckets  = []float64{0, 1, 2, 3, 5, 10, 20}
	nBuckets    = []float64{1, 2, 5, 10, 20}
)

// tokenBuckets returns vLLM's 1-2-5 series up to most.
func tokenBuckets(most int) (b []float64) {
	for scale := 1; ; scale *= 10 {
		for _, m := range []int{1, 2, 5} {
			if v := m * scale; v <= most {
				b = append(b, float64(v))
			} else {
				return b
			}
		}
	}
}

// The owners of a gap between two steps.
const (
	gapGPUStep   = iota // binding and launching
	gapWriters          // a CPU left its cores to the writers
	gapScheduler        // work was left, but no plan on offer
)

// engineMetrics are the engine's series, under vLLM's names where vLLM has the
// same thing. docs/METRICS.md lists them.
type engineMetrics struct {
	registry *prometheus.Registry

	ttft, itl, tpot, e2e, queue, prefill, decode, inference    prometheus.Histogram
	waitSteps                                                  prometheus.Histogram
	promptLen, outputLen, maxTokens, n, computed, preempted    prometheus.Histogram
	promptTokens, cachedTokens, cachedBySource, computedTokens prometheus.Counter
	success                                                    [waybill.Error + 1]prometheus.Counter
	phase                                                      [waybill.NumParts]prometheus.Observer
	stepSeconds, iteration, stepRows, stepPrefill              prometheus.Histogram
	gap                                                        [gapScheduler + 1]prometheus.Observer
	gapMembers, deviceIdle, hostIdle                           [2]prometheus.Observer // same, changed

	generated, preemptions, prefixQueries, prefixHits atomic.Int64
	running, waiting, deferred, kvUsed, kvTotal       atomic.Int64
	ledgerDropped, rebuilds                           atomic.Int64
	// For the console: steps and their time, blocks that hold a free prefix, ended
	// sequences by reason, consoles refused, incidents of stuck handlers; the waits
	// of bytes for their writer, and the writes.
	steps, stepNs, kvCached, viewersRefused, stuck   atomic.Int64
	ended                                            [waybill.Error + 1]atomic.Int64
	writerWait, writerWrite                          mailbox.Hist
	received, invalid, unreadable, refused, admitted atomic.Int64
	notAccepted                                      atomic.Int64
}

// maker registers series with the labels that all of them carry.
type maker struct{ reg prometheus.Registerer }

func (k maker) histogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	k.reg.MustRegister(h)
	return h
}

func (k maker) histograms(name, help, label string, buckets []float64) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{label})
	k.reg.MustRegister(h)
	return h
}

func (k maker) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	k.reg.MustRegister(c)
	return c
}

func (k maker) counters(name, help, label string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	k.reg.MustRegister(c)
	return c
}

func (k maker) gauge(name, help string, labels prometheus.Labels, f func() float64) {
	k.reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, f))
}

func (k maker) total(name, help string, v *atomic.Int64) {
	k.reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(v.Load()) }))
}

func newEngineMetrics(e *Engine) *engineMetrics {
	labels := prometheus.Labels{"model_name": e.cfg.ModelName, "engine": "0"}
	m := &engineMetrics{registry: prometheus.NewRegistry()}
	k := maker{prometheus.WrapRegistererWith(labels, m.registry)}
	m.registerTimes(k)
	m.registerTokens(k, e.cfg.MaxModelLen)
	m.registerSteps(k)
	m.registerState(k, e)
	m.registry.MustRegister(newActorCollector(e.system, labels))
	if e.cfg.Telemetry != nil {
		m.registry.MustRegister(newGPUCollector(e.cfg.Telemetry, labels))
	}
	return m
}

// registerTimes registers what is observed when a request ends, and the gaps
// between its tokens.
func (m *engineMetrics) registerTimes(k maker) {
	m.ttft = k.histogram("vllm:time_to_first_token_seconds", "Time from a request's first byte to its first text: written, if streamed.", ttftBuckets)
	m.itl = k.histogram("vllm:inter_token_latency_seconds", "Gap between two tokens of a sequence on the host.", itlBuckets)
	m.tpot = k.histogram("vllm:request_time_per_output_token_seconds", "Mean time per output token after the first, per sequence.", itlBuckets)
	m.e2e = k.histogram("vllm:e2e_request_latency_seconds", "Time from a request's first byte to its last byte written, or to its end.", e2eBuckets)
	m.queue = k.histogram("vllm:request_queue_time_seconds", "Time from queued to scheduled.", e2eBuckets)
	m.prefill = k.histogram("vllm:request_prefill_time_seconds", "Time from scheduled to the first token.", e2eBuckets)
	m.decode = k.histogram("vllm:request_decode_time_seconds", "Time from the first to the last token.", e2eBuckets)
	m.inference = k.histogram("vllm:request_inference_time_seconds", "Time from scheduled to the last token.", e2eBuckets)
	m.waitSteps = k.histogram("waybill:request_wait_steps", "Wait from tokenized to scheduled in units of the longest step it overlaps; siblings that wait for a shared prompt are left out.", waitBuckets)
	phase := k.histograms("waybill:request_phase_seconds", "Parts of a sequence's time: intake + queued + prefill + egress is the time to first token.", "phase", e2eBuckets)
	for _, p := range waybill.Parts() {
		m.phase[p] = phase.WithLabelValues(p.String())
	}
}

// registerTokens registers what is counted per sequence.
func (m *engineMetrics) registerTokens(k maker, maxLen int) {
	sizes := tokenBuckets(maxLen)
	m.promptLen = k.histogram("vllm:request_prompt_tokens", "Prompt tokens per sequence.", sizes)
	m.outputLen = k.histogram("vllm:request_generation_tokens", "Output tokens per sequence.", sizes)
	m.maxTokens = k.histogram("vllm:request_params_max_tokens", "The bound of output tokens per sequence.", sizes)
	m.n = k.histogram("vllm:request_params_n", "Outputs asked for per prompt.", nBuckets)
	m.computed = k.histogram("vllm:request_prefill_kv_computed_tokens", "Prompt tokens computed, without those found in the prefix cache.", sizes)
	m.preempted = k.histogram("vllm:request_num_preemptions", "Preemptions per sequence.", fewBuckets)
	m.promptTokens = k.counter("vllm:prompt_tokens_total", "Prompt tokens of ended sequences that had a first token.")
	m.cachedTokens = k.counter("vllm:prompt_tokens_cached_total", "Prompt tokens that the prefix cache spared, once per sequence.")
	source := k.counters("vllm:prompt_tokens_by_source_total", "Prompt tokens by where their keys and values came from.", "source")
	m.computedTokens = source.WithLabelValues("local_compute")
	m.cachedBySource = source.WithLabelValues("local_cache_hit")
	success := k.counters("vllm:request_success_total", "Ended sequences by reason.", "finished_reason")
	for r := waybill.Stop; r <= waybill.Error; r++ {
		m.success[r] = success.WithLabelValues(r.String())
	}
	k.total("vllm:generation_tokens_total", "Tokens generated.", &m.generated)
	k.total("vllm:num_preemptions_total", "Times that a sequence lost its KV blocks to others.", &m.preemptions)
	k.total("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache, once per sequence.", &m.prefixQueries)
	k.total("vllm:prefix_cache_hits_total", "Prompt tokens found there.", &m.prefixHits)
	k.total("waybill:requests_received_total", "Sequences asked for by complete requests.", &m.received)
	k.total("waybill:requests_invalid_total", "Sequences of requests answered with a 4xx for what they say.", &m.invalid)
	k.total("waybill:requests_unreadable_total", "Requests cut off, too large, too slow or malformed before they could be decoded.", &m.unreadable)
	k.total("waybill:accepts_without_room_total", "Tries to accept a connection that failed for want of descriptors or memory; each is repeated after 20 ms.", &m.notAccepted)
	k.total("waybill:requests_refused_total", "Sequences refused because the server was full or draining.", &m.refused)
	k.total("waybill:requests_admitted_total", "Sequences accepted.", &m.admitted)
}

// registerSteps registers what is observed per engine step.
func (m *engineMetrics) registerSteps(k maker) {
	m.stepSeconds = k.histogram("waybill:step_seconds", "Length of an engine step, launch to tokens on the host.", itlBuckets)
	m.iteration = k.histogram("vllm:iteration_tokens_total", "Tokens per engine step.", stepTokens)
	m.stepRows = k.histogram("waybill:step_rows", "Sequences per engine step.", stepTokens)
	m.stepPrefill = k.histogram("waybill:step_prefill_tokens", "Prompt tokens per engine step.", append([]float64{0}, stepTokens...))
	owner := k.histograms("waybill:step_gap_seconds", "Time between two steps by the actor that it was spent in.", "actor", gapBuckets)
	m.gap = [...]prometheus.Observer{owner.WithLabelValues("gpu-step"), owner.WithLabelValues("sse-writer"), owner.WithLabelValues("scheduler")}
	members := k.histograms("waybill:step_gap_by_membership_seconds", "Time between two steps, by whether their sequences are the same.", "membership", gapBuckets)
	m.gapMembers = [...]prometheus.Observer{members.WithLabelValues("same"), members.WithLabelValues("changed")}
	idle := k.histograms("waybill:device_idle_seconds", "Device idle between two steps by the device's own clock, by whether their sequences are the same; none on a CPU.", "membership", idleBuckets)
	m.deviceIdle = [...]prometheus.Observer{idle.WithLabelValues("same"), idle.WithLabelValues("changed")}
	host := k.histograms("waybill:device_idle_host_seconds", "The host's part of device idle, from seeing a step's tokens to the return of the call that launched the next, or to letting it go on where its beginning was queued ahead; of steps that are replayed.", "membership", idleBuckets)
	m.hostIdle = [...]prometheus.Observer{host.WithLabelValues("same"), host.WithLabelValues("changed")}
}

// registerState registers what is read from atomics at a scrape.
func (m *engineMetrics) registerState(k maker, e *Engine) {
	of := func(v *atomic.Int64) func() float64 { return func() float64 { return float64(v.Load()) } }
	k.gauge("vllm:num_requests_running", "Sequences in execution.", nil, of(&m.running))
	k.gauge("vllm:num_requests_waiting", "Sequences admitted and waiting.", nil, of(&m.waiting))
	k.gauge("vllm:num_requests_waiting_by_reason", "Sequences admitted and waiting: for a slot, blocks or the next step (capacity), or for the prompt that they share with another output of their request (deferred).", prometheus.Labels{"reason": "capacity"}, func() float64 { return float64(max(0, m.waiting.Load()-m.deferred.Load())) })
	k.gauge("vllm:num_requests_waiting_by_reason", "Sequences admitted and waiting: for a slot, blocks or the next step (capacity), or for the prompt that they share with another output of their request (deferred).", prometheus.Labels{"reason": "deferred"}, of(&m.deferred))
	k.gauge("waybill:num_requests_intake", "Sequences accepted and not queued yet.", nil, func() float64 {
		return float64(max(0, e.places.seqs.Load()-m.running.Load()-m.waiting.Load()))
	})
	k.gauge("waybill:places_in_use", "Accepted sequences that have not given their place back.", nil, of(&e.places.seqs))
	k.gauge("vllm:kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1.", nil, func() float64 {
		return float64(m.kvUsed.Load()) / float64(max(m.kvTotal.Load(), 1))
	})
	k.gauge("vllm:engine_sleep_state", "1 for the state that the engine is in.", prometheus.Labels{"sleep_state": "awake"}, func() float64 { return 1 })
	k.gauge("vllm:cache_config_info", "Constant 1 with the cache's configuration.", prometheus.Labels{
		"block_size": strconv.Itoa(e.cfg.BlockSize), "num_gpu_blocks": strconv.Itoa(e.cfg.NumBlocks),
		"cache_dtype": e.cfg.KVType.String(), "enable_prefix_caching": strconv.FormatBool(e.cfg.PrefixCache),
	}, func() float64 { return 1 })
	k.gauge("waybill:goroutines", "Goroutines of the process.", nil, func() float64 { return float64(runtime.NumGoroutine()) })
	k.gauge("waybill:step_in_flight_seconds", "Age of the step that runs, 0 at rest: one that grows is a device that hangs.", nil, func() float64 {
		return e.stepAge().Seconds()
	})
	k.reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "waybill:lines_dropped_total", Help: "Dump and log lines that a slow stderr cost.",
	}, func() float64 {
		if e.cfg.LinesDropped == nil {
			return 0
		}
		return float64(e.cfg.LinesDropped())
	}))
	k.total("waybill:ledger_dropped_total", "Waybills lost because the Ledger was too far behind.", &m.ledgerDropped)
	k.total("waybill:stuck_handlers_total", "Handlers and steps that ran longer than --stuck-after.", &m.stuck)
	k.total("waybill:pipeline_rebuilds_total", "Rebuilds of Scheduler and GPU-step after a failure.", &m.rebuilds)
}

// wrote observes a write that began at from with bytes made at made.
func (m *engineMetrics) wrote(made, from int64) {
	if !waybill.Observing {
		return
	}
	if made != 0 {
		m.writerWait.Record(from - made)
	}
	m.writerWrite.Record(waybill.Now() - from)
}

// interToken observes one gap.
func (m *engineMetrics) interToken(ns int64) {
	if waybill.Observing {
		m.itl.Observe(float64(ns) / 1e9)
	}
}

// step observes a finished step and the gap before it.
func (m *engineMetrics) step(d *stepDone) {
	if !waybill.Observing {
		return
	}
	m.steps.Add(1)
	m.stepNs.Add(d.endedAt - d.launchedAt)
	m.stepSeconds.Observe(float64(d.endedAt-d.launchedAt) / 1e9)
	m.iteration.Observe(float64(d.prefillTokens + d.decodeRows))
	m.stepRows.Observe(float64(d.rows))
	m.stepPrefill.Observe(float64(d.prefillTokens))
	if gap := d.gapGPU + d.gapWriters; gap > 0 {
		m.gap[gapGPUStep].Observe(float64(d.gapGPU) / 1e9)
		m.gap[gapWriters].Observe(float64(d.gapWriters) / 1e9)
		which := 0
		if d.changed {
			which = 1
		}
		m.gapMembers[which].Observe(float64(gap) / 1e9)
		if d.deviceIdle >= 0 {
			m.deviceIdle[which].Observe(d.deviceIdle.Seconds())
		}
		if d.hostIdle >= 0 {
			m.hostIdle[which].Observe(d.hostIdle.Seconds())
		}
	}
}

// finished observes a complete waybill. A part that was not reached is no
// sample.
func (m *engineMetrics) finished(s *Sequence, split *waybill.Split) {
	b := s.Bill
	m.success[split.Reason].Inc()
	m.ended[split.Reason].Add(1)
	for p, o := range m.phase {
		if split.Has(waybill.Part(p)) {
			o.Observe(split.Seconds(waybill.Part(p)))
		}
	}
	seen := func(h prometheus.Histogram, p waybill.Part) {
		if split.Has(p) {
			h.Observe(split.Seconds(p))
		}
	}
	seen(m.e2e, waybill.E2E)
	if prompt := b.PromptTokens.Load(); prompt > 0 {
		m.tokens(s, prompt)
	}
	if b.At(waybill.Scheduled) == 0 {
		return
	}
	seen(m.queue, waybill.Queue)
	if steps, ok := b.WaitSteps(); ok && !s.sibling() {
		m.waitSteps.Observe(steps)
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

// tokens observes the sizes of a sequence that was tokenized.
func (m *engineMetrics) tokens(s *Sequence, prompt int64) {
	b := s.Bill
	cached := b.CachedTokens.Load()
	m.promptLen.Observe(float64(prompt))
	m.outputLen.Observe(float64(b.OutputTokens.Load()))
	m.preempted.Observe(float64(b.Preemptions.Load()))
	m.n.Observe(float64(s.req.N))
	if s.limits != nil {
		m.maxTokens.Observe(float64(s.limits.MaxTokens))
	}
	// Totals hold prompts that were computed: one that was aborted while it waited
	// cost nothing, and the sources add up to the total.
	if b.At(waybill.FirstToken) != 0 {
		m.promptTokens.Add(float64(prompt))
		m.cachedTokens.Add(float64(cached))
		m.cachedBySource.Add(float64(cached))
		m.computed.Observe(float64(prompt - cached))
		m.computedTokens.Add(float64(prompt - cached))
	}
}
