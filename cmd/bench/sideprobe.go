package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// sideProbeText is the prompt of a side probe: short, so that what it waits for is
// the server's queue and step, not its own prompt.
const sideProbeText = "Hello"

// sideProbes are the single-token requests beside the main load, as of vLLM's
// --probe-request-rate. They have connections of their own: the client's limit is
// not in their times.
type sideProbes struct {
	stop    func()
	wg      sync.WaitGroup
	mu      sync.Mutex
	records []*Record
}

// startSideProbes sends probes at random moments, ProbeRate per second in the
// mean, until done. nil without a rate.
func (o *Options) startSideProbes(ctx context.Context) (*sideProbes, error) {
	if o.ProbeRate == 0 {
		return nil, nil
	}
	single := *o
	single.IgnoreEOS = true
	body, err := single.payload(prompt{text: sideProbeText, output: 1})
	if err != nil {
		return nil, err
	}
	c, err := newClient(o.BaseURL, o.headers())
	if err != nil {
		return nil, err
	}
	c.timeout = o.RequestTimeout
	ctx, cancel := context.WithCancel(ctx)
	s := &sideProbes{stop: cancel}
	rng := rand.New(rand.NewPCG(o.Seed, 0x51de))
	s.wg.Go(func() {
		defer c.close()
		var open sync.WaitGroup
		defer open.Wait()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Duration(rng.ExpFloat64() / o.ProbeRate * float64(time.Second))):
			}
			r := &Record{Due: time.Now()}
			open.Go(func() {
				// A probe that is under way when the load ends is still answered.
				c.stream(context.WithoutCancel(ctx), o.endpoint(), fmt.Sprintf("probe-%d", i), body, r)
				s.mu.Lock()
				defer s.mu.Unlock()
				s.records = append(s.records, r)
			})
		}
	})
	return s, nil
}

// done stops the probes and returns their summary; nil for nil.
func (s *sideProbes) done(o *Options) *Summary {
	if s == nil {
		return nil
	}
	s.stop()
	s.wg.Wait()
	return summarize(o, s.records)
}
