package main

import (
	"flag"
	"os"
	"sort"
	"sync"
	"testing"
	"time"
)

var longTrace = flag.Bool("longtrace", false, "print the gaps of streams beside a long prompt")

// A long prompt shares the steps with streams that run and with short prompts
// that come: nobody stands still for it, and it is not starved either.
func TestALongPromptHoldsNobodyUp(t *testing.T) {
	p := serveDefault(t, nil, "--max-num-seqs", "16", "--log-format", "none")
	const streams, length = 8, 6000
	idleTTFT := func() time.Duration {
		var all []time.Duration
		for i := range 8 {
			began := time.Now()
			a, err := p.talkTo("/v1/completions", completion(prompt(500+i, 50), 4, true))
			if err != nil || !a.ended() {
				t.Fatalf("%+v, %v", a, err)
			}
			all = append(all, a.firstText().Sub(began))
		}
		sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
		return atQuantile(all, .5)
	}()
	var wg sync.WaitGroup
	var mu sync.Mutex
	results := make([]*talk, streams)
	started := make(chan int, streams)
	stop := make(chan struct{})
	for i := range streams {
		wg.Go(func() {
			c, err := p.ask("/v1/completions", completion(prompt(i, 20), 7000, true))
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			a, err := c.answer(func(n int) bool {
				if n == 5 {
					started <- i
				}
				select {
				case <-stop:
					return false
				default:
					return true
				}
			})
			if err != nil {
				t.Errorf("stream %d: %v", i, err)
				return
			}
			mu.Lock()
			results[i] = a
			mu.Unlock()
		})
	}
	for range streams {
		<-started
	}
	time.Sleep(1500 * time.Millisecond)
	longFrom := time.Now()
	var longFirst time.Time
	longDone := make(chan struct{})
	go func() {
		defer close(longDone)
		a, err := p.talkTo("/v1/completions", completion(prompt(99, length), 2, true))
		if err != nil || !a.ended() {
			t.Errorf("the long prompt: %v", err)
			return
		}
		longFirst = a.firstText()
	}()
	type short struct{ ttft, at time.Duration }
	var shorts []short
	var shortWG sync.WaitGroup
	for i := range 100 {
		shortWG.Go(func() {
			began := time.Now()
			a, err := p.talkTo("/v1/completions", completion(prompt(1000+i, 50), 4, true))
			if err != nil || !a.ended() {
				t.Errorf("short %d: %v", i, err)
				return
			}
			mu.Lock()
			shorts = append(shorts, short{a.firstText().Sub(began), time.Since(longFrom)})
			mu.Unlock()
		})
		time.Sleep(50 * time.Millisecond)
	}
	shortWG.Wait()
	<-longDone
	close(stop)
	wg.Wait()
	if t.Failed() {
		return
	}
	var before, beside []time.Duration
	for _, a := range results {
		var last time.Time
		for _, e := range a.events {
			if w := parsed(e.data); len(w.Choices) == 0 || w.Choices[0].Text == "" {
				continue
			}
			if !last.IsZero() {
				g := e.at.Sub(last)
				if e.at.Before(longFrom) {
					before = append(before, g)
				} else if e.at.Before(longFirst) {
					beside = append(beside, g)
					if *longTrace && a == results[0] {
						println(e.at.Sub(longFrom).Milliseconds(), g.Milliseconds())
					}
				}
			}
			last = e.at
		}
	}
	sort.Slice(before, func(i, j int) bool { return before[i] < before[j] })
	sort.Slice(beside, func(i, j int) bool { return beside[i] < beside[j] })
	var ttfts []time.Duration
	late := 0
	for _, s := range shorts {
		ttfts = append(ttfts, s.ttft)
		if longFrom.Add(s.at).After(longFirst) {
			late++
		}
	}
	sort.Slice(ttfts, func(i, j int) bool { return ttfts[i] < ttfts[j] })
	t.Logf("long prompt: first token after %v; gaps before p50 %v p99 %v; beside p50 %v p99 %v max %v (%d)", longFirst.Sub(longFrom),
		atQuantile(before, .5), atQuantile(before, .99), atQuantile(beside, .5), atQuantile(beside, .99), atQuantile(beside, 1), len(beside))
	t.Logf("short prompts: idle TTFT %v, beside p50 %v p99 %v max %v; %d ended behind the long one's first token", idleTTFT,
		atQuantile(ttfts, .5), atQuantile(ttfts, .99), atQuantile(ttfts, 1), late)
	if *longTrace {
		_, _ = os.Stderr.WriteString(p.log())
	}
}
