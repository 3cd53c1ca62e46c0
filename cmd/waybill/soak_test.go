package main

import (
	"encoding/json"
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
	viewers, samples                            atomic.Int64 // of the console, and what they saw
}

// view is a console that is opened, watched for a while and closed. Some do not
// read at all.
func (s *soak) view(p *process, rng *rand.Rand) error {
	c, err := p.dial()
	if err != nil {
		return err
	}
	defer c.Close()
	s.viewers.Add(1)
	if _, err := io.WriteString(c, "GET /console/api/events HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		return err
	}
	length := time.Duration(rng.ExpFloat64() * 2.5e9)
	if rng.IntN(4) == 0 {
		time.Sleep(length)
		return nil
	}
	_ = c.SetReadDeadline(time.Now().Add(length + 500*time.Millisecond))
	head, err := c.headOf()
	if err != nil || head.status != 200 {
		return fmt.Errorf("a console's events: %+v, %v", head, err)
	}
	text := ""
	for {
		part, err := c.chunk()
		if err != nil {
			break // the time is up
		}
		text += part
	}
	for _, e := range strings.Split(text, "\n\n") {
		if data, ok := strings.CutPrefix(e, "data: "); ok && json.Valid([]byte(data)) {
			s.samples.Add(1)
		}
	}
	return nil
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
	before := p.footprint()
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
	var rssAt []time.Duration
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
		for i := range 3 { // consoles
			rng := rand.New(rand.NewPCG(uint64(i), uint64(load*100)))
			watchers.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Duration(rng.ExpFloat64() * 300e6)):
					}
					if err := s.view(p, rng); err != nil {
						t.Error(err)
						return
					}
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
				rss, rssAt = append(rss, p.footprint().rss), append(rssAt, time.Since(began))
			}
		}
		clients.Wait()
		close(stop)
		watchers.Wait()
	}
	phase(.8, *soakTime/2)
	middle, half := s.refused.Load(), len(rss)
	phase(1.5, *soakTime/2)
	all := len(rss)
	// Where others took the machine while the capacity was measured it is more than
	// that: the load rises until it is too much.
	for load := 3.; s.refused.Load() == 0 && load < 50; load *= 2 {
		t.Logf("nobody was refused at half of %.0f times the capacity measured", load)
		phase(load, 4*time.Second)
	}
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
	if s.samples.Load() == 0 {
		t.Errorf("%d consoles were opened and saw nothing", s.viewers.Load())
	}
	// Memory: a line through the phase at 150 %.
	slope := slope(rssAt[half:all], rss[half:all]) / (1 << 20) // MB/min
	if grown := slope * soakTime.Minutes() / 2; grown > 48 {
		t.Errorf("memory grew by %.0f MB in the second half", grown)
	}
	queue := p.histogramP99("waybill:request_phase_seconds", `phase="queued"`)
	sort.Slice(rss, func(i, j int) bool { return rss[i] < rss[j] })
	t.Logf("capacity %.1f/s; %v: %d sent, %d right, %d wrong, %d refused (%d of them at 80 %%), %d vanished, %d read slowly, %d failed; %d consoles saw %d samples; RSS %d to %d MB, slope %.1f MB/min; p99 of the queue below %.1f s",
		capacity, time.Since(began).Round(time.Second), sent.Load(), s.right.Load(), s.wrong.Load(), s.refused.Load(), middle, s.closed.Load(), s.slow.Load(), s.failed.Load(),
		s.viewers.Load(), s.samples.Load(),
		rss[0]>>20, rss[len(rss)-1]>>20, slope, queue)
	if s.right.Load() == 0 || s.refused.Load() == 0 {
		t.Error("nobody was served, or nobody was refused at 150 %")
	}
	// Forty places at the capacity measured: nobody waits longer than they take.
	if bound := 3*40/capacity + 1; queue > 2*bound {
		t.Errorf("p99 of the queue is %.1f s, bound %.1f s", queue, 2*bound)
	}
	// Connections and viewers are gone. The HTTP server keeps the goroutine of a
	// connection for up to 20 s, for the next one.
	after := p.footprint()
	for end := time.Now().Add(40 * time.Second); after.fds > before.fds+2 || after.gorou > before.gorou+3; after = p.footprint() {
		if time.Now().After(end) {
			t.Errorf("after the load it holds %v, before %v", after, before)
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Logf("before the load: %v; after it: %v", before, after)
}

// slope returns by how many bytes a minute memory grows: a least-squares line.
func slope(at []time.Duration, rss []int64) float64 {
	var x, y, xx, xy float64
	for i := range at {
		m, b := at[i].Minutes(), float64(rss[i])
		x, y, xx, xy = x+m, y+b, xx+m*m, xy+m*b
	}
	n := float64(len(at))
	return (n*xy - x*y) / (n*xx - x*x)
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
