package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// nanToken and infToken are ids whose embeddings are no numbers in poisoned's model.
const nanToken, infToken = 7, 8

// poisoned copies the tiny model and damages two rows of its embedding. Its head is
// a matrix of its own, so only who has one of these tokens is hit.
func poisoned(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	files, err := os.ReadDir(tinyModel)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(tinyModel, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if f.Name() == "model.safetensors" {
			n := binary.LittleEndian.Uint64(b)
			var header map[string]struct {
				DType   string `json:"dtype"`
				Shape   []int  `json:"shape"`
				Offsets []int  `json:"data_offsets"`
			}
			if err := json.Unmarshal(b[8:8+n], &header); err != nil {
				t.Fatal(err)
			}
			e := header["model.embed_tokens.weight"]
			if e.DType != "BF16" || header["lm_head.weight"].Shape == nil {
				t.Fatalf("the tiny model is not what it was: %+v", e)
			}
			data, row := b[8+int(n)+e.Offsets[0]:], 2*e.Shape[1]
			copy(data[nanToken*row:], bytes.Repeat([]byte{0xc0, 0x7f}, e.Shape[1]))
			copy(data[infToken*row:], bytes.Repeat([]byte{0x80, 0x7f}, e.Shape[1]))
		}
		if err := os.WriteFile(filepath.Join(dir, f.Name()), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A request whose logits are no numbers fails, and it alone: those beside it, and
// those that take over its KV blocks, get the answers that they get alone.
func TestLogitsThatAreNoNumbersFailTheirRequestAlone(t *testing.T) {
	dir := poisoned(t)
	// Few blocks, so that damaged ones are soon somebody else's.
	p := start(t, nil, "serve", dir, "--port", "0", "--log-format", "none", "--max-model-len", "256", "--max-num-seqs", "6", "--kv-cache-memory-bytes", "1MiB")
	p.ready()
	var asks, want []string
	for i := range 8 {
		ids := make([]string, 20+11*i)
		for k := range ids {
			ids[k] = fmt.Sprint(20 + (i*131+k*17)%900)
		}
		ask := completion("["+strings.Join(ids, ",")+"]", 30, i%2 == 0)
		// The damaged tokens may not be chosen: their rows of the head are sound.
		ask = strings.TrimSuffix(ask, "}") + fmt.Sprintf(`,"logit_bias":{"%d":-100,"%d":-100}}`, nanToken, infToken)
		a, err := p.talkTo("/v1/completions", ask)
		if err != nil || a.status != 200 || a.text() == "" {
			t.Fatalf("%+v, %v", a, err)
		}
		asks, want = append(asks, ask), append(want, a.text())
	}
	rounds := 25
	var wg sync.WaitGroup
	for i := range asks {
		wg.Go(func() {
			for range rounds {
				if a, err := p.talkTo("/v1/completions", asks[i]); err != nil || a.status != 200 || a.text() != want[i] {
					t.Errorf("request %d beside failing ones: %v %+v, want %q", i, err, a, want[i])
				}
			}
		})
	}
	failed := 0
	for k := range 4 * rounds {
		bad := []int{nanToken, infToken}[k%2]
		stream := k%4 < 2
		var body string
		if k%3 == 0 { // in the prompt, at any place of it
			ids := make([]string, 5+k)
			for i := range ids {
				ids[i] = fmt.Sprint(30 + (k*7+i)%900)
			}
			ids[k%len(ids)] = fmt.Sprint(bad)
			body = completion("["+strings.Join(ids, ",")+"]", 10, stream)
		} else { // chosen as the first output token, so that the second step fails
			body = strings.TrimSuffix(completion("[30,31,32]", 10, stream), "}") + fmt.Sprintf(`,"logit_bias":{"%d":100}}`, bad)
		}
		a, err := p.talkTo("/v1/completions", body)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case a.status == 500 && strings.Contains(parsed(a.body).Error.Message, "not finite"):
			failed++
		case stream && a.status == 200 && len(a.events) > 0 && strings.Contains(a.body, "not finite"):
			failed++
			if strings.Count(a.body, `"error"`) != 1 {
				t.Errorf("%s: more than one error event: %s", body, a.body)
			}
		default:
			t.Errorf("%s: status %d, %s", body, a.status, a.body)
		}
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	p.idle()
	within(t, 5*time.Second, "the errors are booked", func() bool {
		return p.metric("vllm:request_success_total", `finished_reason="error"`) == float64(failed)
	})
	if n := p.metric("waybill:actor_panics_total", ""); n != 0 {
		t.Errorf("%v actors failed", n)
	}
	if u := p.metric("vllm:kv_cache_usage_perc", ""); u != 0 {
		t.Errorf("KV blocks in use: %v", u)
	}
	t.Logf("%d requests failed, %d beside them were right", failed, rounds*len(asks))
}

// stallTime is what docs/SECURITY.md says: a step that runs longer is ill health.
const stallTime = 30 * time.Second

// A step that hangs shows in liveness in the documented time and not before; a
// signal still ends the process, and the client gets one error.
func TestAHungStepIsIllHealthInTime(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for half a minute")
	}
	t.Parallel() // it only waits
	hang := filepath.Join(t.TempDir(), "hang")
	p := startBuilt(t, buildFaulty, []string{"WAYBILL_TEST_HANG=" + hang}, "serve", tinyModel, "--port", "0", "--log-format", "none",
		"--drain-grace", "100ms", "--shutdown-timeout", "1s")
	p.ready()
	get := func(path string) int {
		t.Helper()
		res, err := http.Get(p.url + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	c, err := p.ask("/v1/completions", completion("[1,2,3]", 1500, true))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	type result struct {
		a   *talk
		err error
	}
	got := make(chan result, 1)
	begun := make(chan struct{})
	var once sync.Once
	go func() {
		a, err := c.answer(func(n int) bool {
			if n >= 3 {
				once.Do(func() { close(begun) })
			}
			return true
		})
		got <- result{a, err}
	}()
	select {
	case <-begun:
	case <-time.After(20 * time.Second):
		t.Fatal("no event within 20 s")
	}
	if err := os.WriteFile(hang, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for get("/health") == 200 {
		if d := time.Since(began); d > stallTime+2*time.Second {
			t.Fatalf("liveness is well %v after the step began to hang", d)
		}
		time.Sleep(50 * time.Millisecond)
	}
	d := time.Since(began)
	if d < stallTime-2*time.Second {
		t.Errorf("liveness is ill after %v, documented are %v", d, stallTime)
	}
	if age := p.metric("waybill:step_in_flight_seconds", ""); age < stallTime.Seconds()-2 {
		t.Errorf("the step in flight is %.1f s old by its metric, %v by the clock", age, d)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	signalled := time.Now()
	if status := p.exit(); status != 0 {
		t.Errorf("it ended with %d: %s", status, p.log())
	}
	ended := time.Since(signalled)
	if ended > 15*time.Second {
		t.Errorf("the end took %v", ended)
	}
	r := <-got
	if r.a == nil {
		t.Fatal(r.err)
	}
	if strings.Count(r.a.body, `"error"`) != 1 || !r.a.ended() {
		t.Errorf("the client got no error event: %v, %.300s", r.err, r.a.body[max(0, len(r.a.body)-300):])
	}
	t.Logf("ill after %v; ended %v after the signal", d, ended)
}
