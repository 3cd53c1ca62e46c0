package main

import (
	"context"
	"flag"
	"fmt"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// full runs the whole measurement instead of a sample of it: `make check-split`.
var full = flag.Bool("full", false, "run the whole measurement of the split")

// onlyClients picks one row of the whole measurement.
var onlyClients = flag.Int("clients", 0, "with -full: measure at this number of clients only")

// mix is the i-th request of the measurement: mixed lengths, greedy, one in four
// not streamed.
func mix(i int) (body string, stream bool) {
	words := strings.Fields("time year people way day man thing woman life child world school state family student group country problem hand part place case week company system program question work government number night point home water room mother area money story fact month lot right study book eye job word business issue side kind head house service friend father power hour game line end member law car city community name")
	n := []int{4, 12, 30, 80, 200, 500}[i%6]
	var prompt strings.Builder
	for k := range n {
		prompt.WriteString(words[(i*31+k*k+7*k)%len(words)])
		prompt.WriteByte(' ')
	}
	stream = i%4 != 3
	return fmt.Sprintf(`{"model":"smollm2","prompt":%q,"max_tokens":%d,"temperature":0,"ignore_eos":true,"stream":%t}`,
		prompt.String(), []int{1, 8, 16, 32, 64}[i%5], stream), stream
}

// volatile is what differs between two runs whatever the dump does.
var volatile = regexp.MustCompile(`"(id|created|cached_tokens)":("[^"]*"|\d+)`)

// drive sends the requests first..first+n-1 with c workers.
func drive(t *testing.T, p *process, tag string, n, c int) []answered {
	out := make([]answered, n)
	next := make(chan int)
	var wg sync.WaitGroup
	for range c {
		wg.Go(func() {
			for i := range next {
				body, _ := mix(i)
				a, err := p.post(context.Background(), "/v1/completions", fmt.Sprintf("%s-%d", tag, i), body)
				if err != nil || a.status != 200 {
					t.Errorf("%s-%d: status %d, error %v: %s", tag, i, a.status, err, a.body)
				}
				out[i] = a
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	return out
}

// parseDump returns the numbers of each TTFTSPLIT line, by rid.
func parseDump(t *testing.T, log string) map[string]map[string]float64 {
	lines := map[string]map[string]float64{}
	for _, l := range strings.Split(log, "\n") {
		if !strings.HasPrefix(l, "TTFTSPLIT ") {
			continue
		}
		v := map[string]float64{}
		rid := ""
		for _, f := range strings.Fields(l)[1:] {
			k, s, _ := strings.Cut(f, "=")
			if k == "rid" {
				rid = s
			} else if n, err := strconv.ParseFloat(s, 64); err == nil {
				v[k] = n
			} else if k != "reason" {
				t.Errorf("dump line has %q: %s", f, l)
			}
		}
		if lines[rid] != nil {
			t.Errorf("two dump lines for %s", rid)
		}
		lines[rid] = v
	}
	return lines
}

// addsUp checks that the parts of a line are its whole.
func addsUp(t *testing.T, rid string, v map[string]float64, stream bool) {
	t.Helper()
	near := func(what string, got, want float64) {
		if d := got - want; d > 0.002 || d < -0.002 {
			t.Errorf("%s: parts add up to %.3f ms, %s is %.3f ms", rid, got, what, want)
		}
	}
	near("e2e", v["intake"]+v["queued"]+v["prefill"]+v["decode"]+v["tail"], v["e2e"])
	if stream {
		near("ttft", v["intake"]+v["queued"]+v["prefill"]+v["egress"], v["ttft"])
	}
}

func quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return 0
	}
	sort.Float64s(v)
	return v[int(q*float64(len(v)-1)+0.5)]
}

func TestDumpLinesAddUpAndClientsSeeTheSameBytes(t *testing.T) {
	n, levels := 24, []int{1, 6}
	if *full {
		n, levels = 200, []int{1, 2, 4, 8, 16, 32}
		if *onlyClients > 0 {
			levels = []int{*onlyClients}
		}
	}
	with := serveDefault(t, []string{"VT_TTFT_DUMP=1"})
	without := serveDefault(t, []string{"VT_TTFT_DUMP="})
	var plain []answered
	for _, c := range levels {
		tag := fmt.Sprintf("c%d", c)
		began := time.Now()
		got := drive(t, with, tag, n, c)
		took := time.Since(began)
		if plain == nil {
			plain = drive(t, without, "plain", n, c)
		}
		for end := time.Now().Add(5 * time.Second); strings.Count(with.log(), "TTFTSPLIT rid="+tag+"-") < n && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		lines := parseDump(t, with.log())
		var intake, queued, wait, ttft, gap, kernel, clients []float64
		out, off, offBeyond := 0.0, 0, 0
		for i := range n {
			rid := fmt.Sprintf("%s-%d", tag, i)
			v := lines[rid]
			if v == nil {
				t.Errorf("no dump line for %s", rid)
				continue
			}
			_, stream := mix(i)
			addsUp(t, rid, v, stream)
			intake, queued, wait = append(intake, v["intake"]), append(queued, v["queued"]), append(wait, v["steps_waited"])
			out += v["out"]
			if stream {
				client := float64(got[i].ttft) / 1e6
				ttft, gap = append(ttft, v["ttft"]), append(gap, client-v["ttft"])
				kernel, clients = append(kernel, v["kernel"]), append(clients, client)
				if client-v["ttft"] > 1+0.02*client {
					off++
				}
				if client-v["ttft"]-v["kernel"] > 1+0.02*client {
					offBeyond++
				}
			}
			if a, b := volatile.ReplaceAllString(got[i].body, ""), volatile.ReplaceAllString(plain[i].body, ""); a != b {
				t.Errorf("%s: the client's bytes differ with the dump on:\n%s\n%s", rid, a, b)
			}
		}
		t.Logf("c=%-2d  intake p50 %.2f p99 %.2f  queued p50 %.2f p99 %.2f  steps waited p50 %.0f p99 %.0f  ttft p50 %.1f p99 %.1f ms, by the client p50 %.1f p99 %.1f ms  client-server p50 %.2f p99 %.2f ms, over 1 ms + 2 %%: %d of %d (%d beyond the kernel's part: p50 %.2f p99 %.2f ms)  %.0f tok/s",
			c, quantile(intake, .5), quantile(intake, .99), quantile(queued, .5), quantile(queued, .99), quantile(wait, .5), quantile(wait, .99),
			quantile(ttft, .5), quantile(ttft, .99), quantile(clients, .5), quantile(clients, .99), quantile(gap, .5), quantile(gap, .99), off, len(gap), offBeyond, quantile(kernel, .5), quantile(kernel, .99), out/took.Seconds())
	}
}
