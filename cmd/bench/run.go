package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

// Run measures and reports. It returns ErrFailedRequests, after the report, if a
// request failed.
func Run(ctx context.Context, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	c, err := newClient(o.BaseURL, o.headers())
	if err != nil {
		return err
	}
	defer c.close()
	c.timeout = o.RequestTimeout
	if err := o.prepare(ctx, c); err != nil {
		return err
	}
	if o.Probe != nil {
		return o.probe(ctx, c)
	}
	w, err := newWriter(ctx, &o, c)
	if err != nil {
		return err
	}
	prompts, err := o.Dataset.load(ctx, w, o.NumPrompts, o.Seed)
	if err != nil {
		return err
	}
	o.NumPrompts = len(prompts)
	o.IgnoreEOS = o.IgnoreEOS || o.Dataset.synthetic()
	return o.levels(ctx, c, prompts)
}

// prepare asks the server for what the options leave open, once it is there.
func (o *Options) prepare(ctx context.Context, c *client) error {
	if err := o.waitReady(ctx, c); err != nil {
		return err
	}
	if o.Model != "" {
		return nil
	}
	status, body, err := c.call(ctx, http.MethodGet, "/v1/models", nil)
	if err != nil {
		return err
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if status != http.StatusOK || json.Unmarshal(body, &list) != nil || len(list.Data) == 0 {
		return fmt.Errorf("bench: /v1/models names no model (status %d): use --model", status)
	}
	o.Model = list.Data[0].ID
	return nil
}

// waitReady waits until the server answers /v1/models.
func (o *Options) waitReady(ctx context.Context, c *client) error {
	const interval = 200 * time.Millisecond
	deadline := time.Now().Add(o.ReadyCheckTimeout)
	for told := false; o.ReadyCheckTimeout > 0; {
		status, _, err := c.call(ctx, http.MethodGet, "/v1/models", nil)
		if err == nil && status < http.StatusInternalServerError {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("bench: /v1/models: status %d", status)
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("bench: %s is not ready after %v: %w", o.BaseURL, o.ReadyCheckTimeout, err)
		}
		if !told {
			fmt.Fprintf(o.out(), "waiting up to %v for the server: %v\n", o.ReadyCheckTimeout, err)
			told = true
		}
		time.Sleep(interval)
	}
	return nil
}

// levels runs the workload at each concurrency and reports.
func (o *Options) levels(ctx context.Context, c *client, prompts []prompt) error {
	// All bodies are made before the clock starts: making them takes CPU that the
	// server may share.
	bodies := make([][]byte, len(prompts))
	for i, p := range prompts {
		var err error
		if bodies[i], err = o.payload(p); err != nil {
			return err
		}
	}
	// One request first: a wrong model name or path is told once, not per request.
	test := &Record{Due: time.Now()}
	c.stream(ctx, o.endpoint(), "", bodies[0], test)
	if test.Err != "" {
		return fmt.Errorf("bench: the test request failed, nothing was measured: %s", test.Err)
	}
	levels := o.MaxConcurrency
	if len(levels) == 0 {
		levels = []int{0}
	}
	var summaries []*Summary
	failed := false
	for _, limit := range levels {
		s, err := o.level(ctx, c, bodies, limit)
		if err != nil {
			return err
		}
		// Without usage the dataset's own lengths have to do.
		for i, r := range s.Records {
			if r.InputTokens == 0 {
				r.InputTokens = prompts[i].input
				s.InputTokens += prompts[i].input * btoi(r.Err == "")
			}
		}
		summaries = append(summaries, s)
		failed = failed || s.Failed > 0
		o.table(o.out(), s)
		now := time.Now()
		if o.SaveResult || o.AppendResult {
			file := o.resultFile(limit, len(levels), now)
			if err := o.save(file, o.result(s, now)); err != nil {
				return err
			}
			fmt.Fprintln(o.out(), "saved", file)
		}
		if ctx.Err() != nil {
			break
		}
	}
	if o.Plot != "" {
		if err := os.WriteFile(o.Plot, plot(summaries), 0o644); err != nil {
			return fmt.Errorf("bench: plot: %w", err)
		}
	}
	if failed {
		return ErrFailedRequests
	}
	return nil
}

// btoi returns 1 for true.
func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// level runs the warm-ups and the workload once.
func (o *Options) level(ctx context.Context, c *client, bodies [][]byte, limit int) (*Summary, error) {
	if o.NumWarmups > 0 {
		warm := make([][]byte, o.NumWarmups)
		for i := range warm {
			warm[i] = bodies[i%len(bodies)]
		}
		for _, r := range o.load(ctx, c, warm, make([]time.Duration, len(warm)), limit, "warmup", nil).records {
			if r.Err != "" {
				return nil, fmt.Errorf("bench: a warm-up failed, nothing was measured: %s", r.Err)
			}
		}
	}
	due, changes := o.schedule(rand.New(rand.NewPCG(o.Seed, 0x5c4ed)))
	probes, err := o.startSideProbes(ctx)
	if err != nil {
		return nil, err
	}
	watch := o.watchPhases(ctx)
	l := o.load(ctx, c, bodies, due, limit, fmt.Sprintf("bench-%08x", rand.Uint32()), o.bar(len(bodies)))
	s := summarize(o, l.records)
	s.Concurrency, s.Start, s.Duration, s.RPSChanges = limit, l.start, l.duration, changes
	s.Phases = watch.done(ctx, s.Completed)
	s.Probes = probes.done(o)
	return s, nil
}

// loaded is what load returns. The duration ends with the last answer.
type loaded struct {
	records  []*Record
	start    time.Time
	duration time.Duration
}

// load sends each body when it is due, at most limit at once (0: any number), in
// order, and waits for all answers.
func (o *Options) load(ctx context.Context, c *client, bodies [][]byte, due []time.Duration, limit int, tag string, tick func()) loaded {
	l := loaded{records: make([]*Record, len(bodies)), start: time.Now()}
	workers := limit
	if workers == 0 || workers > len(bodies) {
		workers = len(bodies)
	}
	queue := make(chan int, len(bodies)) // never blocks the one who keeps the time
	var wg sync.WaitGroup
	serve := func(i int) {
		c.stream(ctx, o.endpoint(), fmt.Sprintf("%s-%d", tag, i), bodies[i], l.records[i])
		if tick != nil {
			tick()
		}
	}
	for range workers {
		wg.Go(func() {
			for i := range queue {
				serve(i)
			}
		})
	}
	for i := range bodies {
		at := l.start.Add(due[i])
		l.records[i] = &Record{Due: at}
		// A moment that has passed is not made up for: the request is late, and its
		// client queue time says so.
		until(ctx, at)
		queue <- i
	}
	close(queue)
	wg.Wait()
	l.duration = time.Since(l.start)
	return l
}

// bar returns a function that advances the progress bar, or nil.
func (o *Options) bar(n int) func() {
	if o.Progress == nil {
		return nil
	}
	b := progressbar.NewOptions(n,
		progressbar.OptionSetWriter(o.Progress), progressbar.OptionShowCount(), progressbar.OptionShowIts(),
		progressbar.OptionSetDescription("requests"), progressbar.OptionClearOnFinish(),
		// Drawing costs the client CPU that it may share with the server.
		progressbar.OptionThrottle(200*time.Millisecond),
	)
	return func() { _ = b.Add(1) }
}
