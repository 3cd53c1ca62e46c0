package bench

import (
	"math"
	"time"
)

// Summary is the outcome of one run at one concurrency.
type Summary struct {
	Concurrency int // 0: no limit
	Start       time.Time
	Duration    time.Duration
	Records     []*Record // by prompt
	RPSChanges  []rateChange

	Completed, Failed         int
	InputTokens, OutputTokens int
	Good                      int // requests within all of --goodput
	NoText, Estimated         int // completed requests without text; without usage

	// Samples by metric, in ms: ttft, tpot, itl, e2el, client_queue_time,
	// ttft_including_client_queue, e2el_including_client_queue, ttft_first_event.
	Samples map[string]series
	// MaxTokensPerSecond and MaxConcurrent are maxima over whole seconds.
	MaxTokensPerSecond float64
	MaxConcurrent      int

	// Probes sums up the requests of --probe-request-rate; nil: there were none.
	Probes *Summary

	// Phases are the server's own means, if it is a waybill; else nil.
	Phases *serverPhases
}

// summarize computes a run's figures. Failed requests count in nothing but Failed.
func summarize(o *Options, records []*Record) *Summary {
	s := &Summary{Records: records, Samples: map[string]series{}}
	add := func(name string, d time.Duration) { s.Samples[name] = append(s.Samples[name], ms(d)) }
	for _, r := range records {
		if r.Err != "" {
			s.Failed++
			continue
		}
		s.Completed++
		s.InputTokens += r.InputTokens
		s.OutputTokens += r.OutputTokens
		if r.Text == "" {
			s.NoText++
		}
		if r.Estimated {
			s.Estimated++
		}
		// Requests that failed late would shorten some figures and lengthen others;
		// they are counted and shown instead.
		add("ttft", r.TTFT())
		add("ttft_first_event", r.TTFTEvent())
		add("ttft_including_client_queue", r.Queued()+r.TTFT())
		add("e2el", r.Latency())
		add("e2el_including_client_queue", r.Queued()+r.Latency())
		add("client_queue_time", r.Queued())
		// Without a second token tpot is 0 for goodput, and no sample.
		tpot, ok := r.TPOT()
		if ok {
			add("tpot", tpot)
		}
		for _, gap := range r.ITL {
			add("itl", gap)
		}
		if within(o.Goodput, "ttft", r.TTFT()) && within(o.Goodput, "tpot", tpot) && within(o.Goodput, "e2el", r.Latency()) {
			s.Good++
		}
	}
	s.peaks()
	return s
}

// within reports whether d meets a limit, if there is one.
func within(limits map[string]float64, name string, d time.Duration) bool {
	limit, ok := limits[name]
	return !ok || ms(d) <= limit
}

// peaks finds the best second: events are counted where they arrived, requests in
// each second that they touch.
func (s *Summary) peaks() {
	var first, last time.Time
	for _, r := range s.Records {
		if r.Err != "" {
			continue
		}
		if first.IsZero() || r.Sent.Before(first) {
			first = r.Sent
		}
		if r.LastEvent.After(last) {
			last = r.LastEvent
		}
	}
	if first.IsZero() {
		return
	}
	seconds := int(math.Ceil(last.Sub(first).Seconds())) + 1
	tokens := make([]int, seconds)
	open := make([]int, seconds)
	for _, r := range s.Records {
		if r.Err != "" {
			continue
		}
		at := r.FirstText.Sub(first)
		tokens[int(at.Seconds())]++
		for _, gap := range r.ITL {
			at += gap
			tokens[int(at.Seconds())]++
		}
		for k := int(r.Sent.Sub(first).Seconds()); k <= int(r.LastEvent.Sub(first).Seconds()); k++ {
			open[k]++
		}
	}
	for k := range tokens {
		s.MaxTokensPerSecond = max(s.MaxTokensPerSecond, float64(tokens[k]))
		s.MaxConcurrent = max(s.MaxConcurrent, open[k])
	}
}

// perSecond divides by the run's length.
func (s *Summary) perSecond(n int) float64 {
	if s.Duration <= 0 {
		return 0
	}
	return float64(n) / s.Duration.Seconds()
}

// ms returns a duration in milliseconds.
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
