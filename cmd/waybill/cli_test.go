package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"waybill/cmd/gpureport"
)

// tinyModel is a folder with a random-weight model.
const tinyModel = "../../model/testdata/tiny/qwen3"

// copyTiny copies the tiny model so that a test can damage it.
func copyTiny(t *testing.T) string {
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
		if err := os.WriteFile(filepath.Join(dir, f.Name()), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// edit replaces old by new in a file.
func edit(t *testing.T, file, old, new string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(b, []byte(old)) {
		t.Fatalf("%s does not contain %q", file, old)
	}
	if err := os.WriteFile(file, bytes.Replace(b, []byte(old), []byte(new), 1), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestStartUpErrorsAreOneClearLineAndStatus2(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	damaged := func(f func(dir string)) string {
		dir := copyTiny(t)
		f(dir)
		return dir
	}
	for _, c := range []struct {
		name string
		env  []string
		args []string
		want []string // all in the message
	}{
		{"no such file", nil, []string{"/nowhere/model.gguf"}, []string{"/nowhere/model.gguf"}},
		{"not a model", nil, []string{"cli_test.go"}, []string{"cli_test.go"}},
		{"truncated weights", nil, []string{damaged(func(d string) {
			if err := os.Truncate(d+"/model.safetensors", 100000); err != nil {
				t.Fatal(err)
			}
		})}, []string{"model.safetensors"}},
		{"unknown architecture", nil, []string{damaged(func(d string) {
			edit(t, d+"/config.json", "Qwen3ForCausalLM", "MambaForCausalLM")
		})}, []string{"config.json", "MambaForCausalLM"}},
		{"wrong shape", nil, []string{damaged(func(d string) {
			edit(t, d+"/config.json", `"intermediate_size": `, `"intermediate_size": 1`)
		})}, []string{"mlp", "expected"}},
		{"no tokenizer", nil, []string{damaged(func(d string) { os.Remove(d + "/tokenizer.json") })}, []string{"tokenizer.json"}},
		{"dump is neither 0 nor 1", []string{"VT_TTFT_DUMP=yes"}, []string{tinyModel}, []string{"VT_TTFT_DUMP", "yes"}},
		{"no CUDA", nil, []string{tinyModel, "--device", "cuda"}, []string{"CUDA", "--device cpu"}},
		{"port in use", nil, []string{tinyModel, "--port", fmt.Sprint(taken.Addr().(*net.TCPAddr).Port)}, []string{"address already in use"}},
		{"context too long", nil, []string{tinyModel, "--max-model-len", "100000000"}, []string{"--max-model-len"}},
		{"no KV memory", nil, []string{tinyModel, "--kv-cache-memory-bytes", "10"}, []string{"--kv-cache-memory-bytes"}},
		{"KV memory is no size", nil, []string{tinyModel, "--kv-cache-memory-bytes", "lots"}, []string{"--kv-cache-memory-bytes", "lots"}},
		{"no sequences", nil, []string{tinyModel, "--max-num-seqs", "0"}, []string{"--max-num-seqs"}},
		{"batch smaller than sequences", nil, []string{tinyModel, "--max-num-seqs", "8", "--max-num-batched-tokens", "4"}, []string{"batched tokens"}},
		{"blocks beyond an int", nil, []string{tinyModel, "--block-size", "2305843009213693952"}, []string{"--block-size"}},
		{"too many sequences", nil, []string{tinyModel, "--max-num-seqs", "9223372036854775807"}, []string{"--max-num-seqs"}},
		{"too many places", nil, []string{tinyModel, "--max-num-queued-reqs", "9223372036854775807"}, []string{"--max-num-queued-reqs"}},
		{"too many threads", nil, []string{tinyModel, "--threads", "100000"}, []string{"--threads"}},
		{"a model without a name", nil, []string{tinyModel, "--served-model-name", ",a"}, []string{"--served-model-name", "empty"}},
		{"no such port", nil, []string{tinyModel, "--port", "99999"}, []string{"--port"}},
		{"negative interval", nil, []string{tinyModel, "--sse-keep-alive-interval=-1"}, []string{"--sse-keep-alive-interval"}},
		{"interval beyond an int", nil, []string{tinyModel, "--sse-keep-alive-interval=9223372036854775807"}, []string{"--sse-keep-alive-interval"}},
		{"negative grace", nil, []string{tinyModel, "--drain-grace=-1s"}, []string{"--drain-grace"}},
		{"console for everybody", nil, []string{tinyModel, "--host", "0.0.0.0", "--console"}, []string{"--console", "--api-key"}},
		{"unknown flag", nil, []string{tinyModel, "--no-such-flag"}, []string{"--no-such-flag"}},
		{"no such status", nil, []string{tinyModel, "--overload-status", "500"}, []string{"--overload-status"}},
		{"unknown kernel level", []string{"WAYBILL_CPU=z80"}, []string{tinyModel}, []string{"z80"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := start(t, c.env, append([]string{"serve", "--port", "0"}, c.args...)...)
			if got := p.exit(); got != 2 {
				t.Errorf("exit status %d, want 2", got)
			}
			log := p.log()
			for _, w := range c.want {
				if !strings.Contains(log, w) {
					t.Errorf("the message does not say %q: %s", w, log)
				}
			}
			if strings.Contains(log, "goroutine ") || strings.Count(strings.TrimSpace(log), "\n") > 0 {
				t.Errorf("not one clear line: %s", log)
			}
		})
	}
}

// exited is how a parser that must not end the test ends.
type exited int

// output runs the parser and returns what it printed.
func output(args ...string) (out, errs string) {
	var o, e bytes.Buffer
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(exited); !ok {
				panic(p)
			}
		}
		out, errs = o.String(), e.String()
	}()
	parser := newParser(&cli{}, kong.Writers(&o, &e), kong.Exit(func(status int) { panic(exited(status)) }))
	_, err := parser.Parse(args)
	parser.FatalIfErrorf(err)
	return
}

func TestAMistypedFlagIsNotHiddenByTheHelp(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"serve model --prot 1", "--prot"},
		{"bench --num-promts 1", "--num-promts"},
		{"serve model --device gpu", "auto"},
		{"serv", "serv"},
	} {
		out, errs := output(strings.Fields(c.line)...)
		if !strings.Contains(errs, c.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: not one line with %q: %s", c.line, c.want, errs)
		}
		if n := strings.Count(out, "\n"); n > 4 || !strings.Contains(out, "--help") {
			t.Errorf("%s: %d lines of usage, want a few that name --help:\n%s", c.line, n, out)
		}
	}
}

func TestHelpNamesTheValuesAndWhereFlagsAre(t *testing.T) {
	for line, want := range map[string][]string{
		"serve": {"429, 503", "auto, cpu, cuda", "auto, f32, f16, bf16", "int8, f32", "text, json, none", "auto, dummy", "/tokenize, /detokenize"},
		"bench": {"random, sharegpt, custom, prefix_repetition"}, "ttft": {"ttft split --help", "--label, --metrics, --interval"},
		"ttft split": {"--label", "--metrics", "--interval"}, "gpu-report": {strings.Join(gpureport.Parts, ", ")},
	} {
		out, _ := output(append(strings.Fields(line), "--help")...)
		// Lines are wrapped anywhere.
		out = strings.Join(strings.Fields(out), " ")
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("waybill %s --help lacks %q:\n%s", line, w, out)
			}
		}
	}
}

func TestBeforeAndAfterAreOneSource(t *testing.T) {
	c := parse(t, "ttft", "m0,m1", "run-c8.log", "--label", "c=4,c=8")
	if got := c.TTFT.Split.Sources; len(got) != 2 || got[0] != "m0,m1" || len(c.TTFT.Split.Label) != 2 {
		t.Errorf("sources %q, labels %q", got, c.TTFT.Split.Label)
	}
}

func TestEveryFlagHasAnEnvironmentForm(t *testing.T) {
	p := serveDefault(t, []string{"WAYBILL_MAX_MODEL_LEN=256", "WAYBILL_MAX_NUM_SEQS=3"})
	res, err := http.Get(p.url + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	if !strings.Contains(string(b), `"max_model_len":256`) {
		t.Errorf("WAYBILL_MAX_MODEL_LEN had no effect: %s", b)
	}
}

func TestDummyWeightsNeedTheConfigOnly(t *testing.T) {
	dir := copyTiny(t)
	if err := os.Remove(dir + "/model.safetensors"); err != nil {
		t.Fatal(err)
	}
	p := start(t, nil, "serve", dir, "--load-format", "dummy", "--port", "0")
	for end := time.Now().Add(30 * time.Second); !strings.Contains(p.log(), "ready:"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not ready: %s", p.log())
		}
	}
}

func TestSignalDrainsWithoutLosingARequest(t *testing.T) {
	p := serveDefault(t, nil, "--drain-grace", "700ms", "--shutdown-timeout", "20s")
	var wg sync.WaitGroup
	ask := func(i int, maxTokens int) (answered, error) {
		return p.post(context.Background(), "/v1/completions", fmt.Sprintf("d-%d", i),
			fmt.Sprintf(`{"prompt":"Once upon a time","max_tokens":%d,"temperature":0,"ignore_eos":true,"stream":true}`, maxTokens))
	}
	started := make(chan struct{})
	wg.Go(func() {
		close(started)
		a, err := ask(0, 200)
		if err != nil || a.status != 200 || !strings.HasSuffix(a.body, "data: [DONE]\n\n") || !strings.Contains(a.body, `"finish_reason":"length"`) {
			t.Errorf("a request that ran at the signal was lost: status %d, %v, %.200s", a.status, err, a.body)
		}
	})
	<-started
	time.Sleep(100 * time.Millisecond)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	res, err := http.Get(p.url + "/ready")
	if err != nil {
		t.Fatalf("no answer within the grace: %v", err)
	}
	res.Body.Close()
	if res.StatusCode != 503 {
		t.Errorf("/ready says %d while draining, want 503", res.StatusCode)
	}
	a, err := ask(1, 5)
	if err != nil || a.status != 200 {
		t.Errorf("a request within the grace: status %d, %v", a.status, err)
	}
	wg.Wait()
	if got := p.exit(); got != 0 {
		t.Errorf("exit status %d after a drain, want 0: %s", got, p.log())
	}
}

func TestShutdownTimeoutCutsWithAnErrorEvent(t *testing.T) {
	p := serveDefault(t, nil, "--drain-grace", "50ms", "--shutdown-timeout", "200ms")
	done := make(chan answered, 1)
	go func() {
		a, _ := p.post(context.Background(), "/v1/completions", "cut",
			`{"prompt":"Once upon a time","max_tokens":7000,"temperature":0,"ignore_eos":true,"stream":true}`)
		done <- a
	}()
	time.Sleep(300 * time.Millisecond)
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	a := <-done
	if !strings.Contains(a.body, `"error":{"message":"the server is shutting down"`) || strings.Count(a.body, "[DONE]") != 1 {
		t.Errorf("no error event, or not one end: %s", a.body[max(0, len(a.body)-400):])
	}
	if got := p.exit(); got != 0 {
		t.Errorf("exit status %d, want 0", got)
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	p := serveDefault(t, nil, "--drain-grace", "60s")
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	time.Sleep(200 * time.Millisecond)
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	began := time.Now()
	if got := p.exit(); got == 0 {
		t.Error("exit status 0 after a second signal")
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("it took %v", d)
	}
}
