package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"
)

// seen is a client's view of a stream: arrivals after the request was sent.
type seen struct {
	role, token time.Duration   // first event with a choice, and with text
	texts       []time.Duration // events with text
	timings     map[string]float64
}

// stream posts body and notes when which event arrives.
func (p *process) stream(t *testing.T, path, rid, body string) seen {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), "POST", p.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Request-Id", rid)
	began := time.Now()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var s seen
	for r := bufio.NewReader(res.Body); ; {
		line, err := r.ReadString('\n')
		at := time.Since(began)
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok && err == nil {
			continue
		}
		if data == "[DONE]" {
			return s
		}
		var e struct {
			Choices []struct {
				Text  string
				Delta struct{ Content string }
			}
			Timings map[string]float64
		}
		if err != nil || json.Unmarshal([]byte(data), &e) != nil {
			t.Fatalf("%s: status %d, %v: %q", rid, res.StatusCode, err, line)
		}
		if e.Timings != nil {
			s.timings = e.Timings
		}
		if len(e.Choices) == 0 {
			continue
		}
		if s.role == 0 {
			s.role = at
		}
		if e.Choices[0].Text+e.Choices[0].Delta.Content != "" {
			if s.token == 0 {
				s.token = at
			}
			s.texts = append(s.texts, at)
		}
	}
}

// The first event is the first token, and the server's own time to it, on every
// surface, is the client's.
func TestFirstTokenIsHonest(t *testing.T) {
	words, rounds := 300, 5
	if *full {
		words = 4000
	}
	p := serveDefault(t, []string{"VT_TTFT_DUMP=1"}, "--max-model-len", "8192", "--no-enable-prefix-caching")
	for _, path := range []string{"/v1/chat/completions", "/v1/completions"} {
		var off, first []float64
		for i := range rounds {
			var prompt strings.Builder
			for k := range words {
				prompt.WriteString([]string{"time ", "year ", "people ", "way ", "day ", "man ", "thing "}[(i+k*k+k/7)%7])
			}
			ask := fmt.Sprintf(`"prompt":%q`, prompt.String())
			if strings.Contains(path, "chat") {
				ask = fmt.Sprintf(`"messages":[{"role":"user","content":%q}]`, prompt.String())
			}
			rid := fmt.Sprintf("honest%s-%d", strings.ReplaceAll(path, "/", "."), i)
			s := p.stream(t, path, rid, `{`+ask+`,"max_tokens":32,"temperature":0,"ignore_eos":true,"stream":true,"timings":true}`)
			if d := s.token - s.role; d > max(10*time.Millisecond, s.token/20) {
				t.Errorf("%s: text comes %v after the first event, at %v", rid, d, s.token)
			}
			for end := time.Now().Add(5 * time.Second); !strings.Contains(p.log(), "rid="+rid+" ") && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			line := parseDump(t, p.log())[rid]
			client := float64(s.token) / 1e6
			for surface, server := range map[string]float64{"the dump line": line["ttft"], "the last event": s.timings["ttft_ms"]} {
				if server <= 0 {
					t.Errorf("%s: %s has no ttft", rid, surface)
				}
				off = append(off, math.Abs(client-server)/(10+0.02*client))
			}
			var gaps []float64
			for k := 1; k < len(s.texts); k++ {
				gaps = append(gaps, float64(s.texts[k]-s.texts[k-1]))
			}
			ratio := gaps[0] // before they are sorted
			ratio /= quantile(gaps, .5)
			first = append(first, ratio)
			t.Logf("%s: first text after %.1f ms, ttft of the server %.1f ms, first gap %.2f median gaps", rid, client, line["ttft"], ratio)
		}
		// The median of the rounds: one stall of the machine is no dishonesty.
		if m := quantile(off, .5); m > 1 {
			t.Errorf("%s: client and server differ by %.1f times 10 ms + 2 %%", path, m)
		}
		if m := quantile(first, .5); m > 3 {
			t.Errorf("%s: the first gap is %.1f median gaps, want at most 3", path, m)
		}
	}
}
