package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"flag"
)

var soakTime = flag.Duration("soak", 30*time.Second, "length of the soak test: make soak takes 10m")

// soak counts what its clients saw.
type soak struct {
	right, wrong, refused, closed, slow, failed atomic.Int64
}

// A server under mixed load at 80 and then 150 % of what it can do, with clients
// that vanish or read slowly and with scrapes, gives no wrong answer, keeps its
// memory, and accounts for every request.
func TestSoakOfMixedLoad(t *testing.T) {
	p := serveDefault(t, nil, "--log-format", "none", "--max-num-queued-reqs", "40", "--max-num-seqs", "16")
	// A few kinds of requests whose answers are known.
	var kinds, want []string
	for i := range 6 {
		kinds = append(kinds, completion(prompt(i, []int{8, 30, 60, 120, 200, 400}[i]), []int{8, 16, 24, 16, 8, 4}[i], i%2 == 0))
		a, err := p.talkTo("/v1/completions", kinds[i])
		if err != nil || a.status != 200 {
			t.Fatalf("%+v, %v", a, err)
		}
		want = append(want, a.text())
	}
	// What the server can do: closed loop, as many clients as slots.
	var served atomic.Int64
	var wg sync.WaitGroup
	calm := 4 * time.Second
	for i := range 12 {
		wg.Go(func() {
			for end := time.Now().Add(calm); time.Now().Before(end); i++ {
				if a, err := p.talkTo("/v1/completions", kinds[i%len(kinds)]); err == nil && a.status == 200 {
					served.Add(1)
				}
			}
		})
	}
	wg.Wait()
	capacity := float64(served.Load()) / calm.Seconds()
	p.idle()
	received := p.metric("waybill:requests_received_total", "")
	var s soak
	var sent atomic.Int64
	one := func(rng *rand.Rand) {
		k := rng.IntN(len(kinds))
		c, err := p.ask("/v1/completions", kinds[k])
		if err != nil {
			s.failed.Add(1)
			return
		}
		defer c.Close()
		switch rng.IntN(10) {
		case 0: // goes away at any time
			time.Sleep(time.Duration(rng.ExpFloat64() * 80e6))
			s.closed.Add(1)
			return
		case 1: // reads slowly
			time.Sleep(time.Duration(rng.ExpFloat64() * 500e6))
			s.slow.Add(1)
		}
		a, err := c.answer(nil)
		switch {
		case err != nil:
			s.failed.Add(1)
			t.Errorf("a request failed: %v", err)
		case a.status == 503:
			s.refused.Add(1)
		case a.status == 200 && a.text() == want[k]:
			s.right.Add(1)
		default:
			s.wrong.Add(1)
			t.Errorf("kind %d: status %d, %q, want %q", k, a.status, a.text(), want[k])
		}
	}
	var rss []int64
	began := time.Now()
	phase := func(load float64, length time.Duration) {
		end := time.Now().Add(length)
		stop := make(chan struct{})
		var clients, watchers sync.WaitGroup
		for range 2 { // scrapes
			watchers.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(200 * time.Millisecond):
					}
					res, err := http.Get(p.url + "/metrics")
					if err != nil {
						t.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
			})
		}
		rng := rand.New(rand.NewPCG(uint64(load*100), 8))
		next := time.Now()
		lastSample := time.Now()
		for time.Now().Before(end) {
			next = next.Add(time.Duration(rng.ExpFloat64() / (load * capacity) * 1e9))
			time.Sleep(time.Until(next))
			seed := rng.Uint64()
			sent.Add(1)
			clients.Go(func() { one(rand.New(rand.NewPCG(seed, 1))) })
			if time.Since(lastSample) > length/10 {
				lastSample = time.Now()
				rss = append(rss, p.footprint().rss)
			}
		}
		clients.Wait()
		close(stop)
		watchers.Wait()
	}
	phase(.8, *soakTime/2)
	middle := s.refused.Load()
	phase(1.5, *soakTime/2)
	p.idle()
	if p.cmd.ProcessState != nil {
		t.Fatal("the server ended")
	}
	// Every request is accounted for.
	get := func(name, label string) float64 { return p.metric(name, label) }
	within(t, 10*time.Second, "every waybill is booked", func() bool {
		return get("vllm:request_success_total", "") == get("waybill:requests_admitted_total", "")
	})
	rec := get("waybill:requests_received_total", "")
	if rec != get("waybill:requests_admitted_total", "")+get("waybill:requests_refused_total", "")+get("waybill:requests_invalid_total", "") {
		t.Error("received is not admitted, refused and invalid together")
	}
	if n := rec - received + get("waybill:requests_unreadable_total", ""); n > float64(sent.Load()) || n < float64(sent.Load()-s.closed.Load()) {
		t.Errorf("%d were sent, %v received", sent.Load(), n)
	}
	if get("waybill:ledger_dropped_total", "") != 0 || get("waybill:actor_panics_total", "") != 0 {
		t.Error("waybills were dropped, or an actor failed")
	}
	// Memory: a line through the second half.
	half := rss[len(rss)/2:]
	slope := float64(half[len(half)-1]-half[0]) / (1 << 20) / (soakTime.Minutes() / 2)
	if grown := half[len(half)-1] - half[0]; grown > 48<<20 {
		t.Errorf("memory grew by %d MB in the second half", grown>>20)
	}
	queue := p.histogramP99("waybill:request_phase_seconds", `phase="queued"`)
	sort.Slice(rss, func(i, j int) bool { return rss[i] < rss[j] })
	t.Logf("capacity %.1f/s; %v: %d sent, %d right, %d wrong, %d refused (%d of them at 80 %%), %d vanished, %d read slowly, %d failed; RSS %d to %d MB, slope %.1f MB/min; p99 of the queue below %.1f s",
		capacity, time.Since(began).Round(time.Second), sent.Load(), s.right.Load(), s.wrong.Load(), s.refused.Load(), middle, s.closed.Load(), s.slow.Load(), s.failed.Load(),
		rss[0]>>20, rss[len(rss)-1]>>20, slope, queue)
	if s.right.Load() == 0 || s.refused.Load() == 0 {
		t.Error("nobody was served, or nobody was refused at 150 %")
	}
	// Forty places at the capacity measured: nobody waits longer than they take.
	if bound := 3*40/capacity + 1; queue > 2*bound {
		t.Errorf("p99 of the queue is %.1f s, bound %.1f s", queue, 2*bound)
	}
}

// histogramP99 returns the upper bound of the bucket that holds the 99th percentile.
func (p *process) histogramP99(name, label string) float64 {
	p.t.Helper()
	res, err := http.Get(p.url + "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	total := p.metric(name+"_count", label)
	for _, l := range strings.Split(string(b), "\n") {
		if !strings.HasPrefix(l, name+"_bucket{") || !strings.Contains(l, label) {
			continue
		}
		var le, n float64
		at := strings.Index(l, `le="`)
		if _, err := fmt.Sscanf(strings.Replace(l[at:], `"`, " ", 2), "le= %g", &le); err != nil {
			continue // +Inf
		}
		_, _ = fmt.Sscan(l[strings.LastIndexByte(l, ' ')+1:], &n)
		if n >= .99*total {
			return le
		}
	}
	return 1e9
}
