package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"waybill/actors"
	"waybill/kernels"
	"waybill/kernels/cpu"
	"waybill/model"
	"waybill/model/tokenizer"
)

// tinyFolder holds a random-weight model whose greedy tokens are known. Its text
// is noise; its vocabulary has a token for each byte.
const tinyFolder = "../model/testdata/tiny/qwen3"

// liveness bounds waits for things that must happen but have no deadline of
// their own on a busy machine.
const liveness = 20 * time.Second

// tinyChat renders messages plainly: role, colon, content, newline.
type tinyChat struct{}

func (tinyChat) Render(raw json.RawMessage, o ChatOptions) (string, []actors.Span, error) {
	var list []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return "", nil, err
	}
	var b strings.Builder
	var plain []actors.Span
	for _, m := range list {
		if m.Role == "refuse" {
			return "", nil, fmt.Errorf("the role %q has no place in this template", m.Role)
		}
		if m.Role == "panic" {
			panic("a template fails")
		}
		var text string
		if json.Unmarshal(m.Content, &text) != nil {
			var parts []struct{ Text string }
			_ = json.Unmarshal(m.Content, &parts)
			for _, p := range parts {
				text += p.Text
			}
		}
		b.WriteString(m.Role + ": ")
		plain = append(plain, actors.Span{Start: b.Len(), End: b.Len() + len(text)})
		b.WriteString(text + "\n")
	}
	if o.AddGenerationPrompt {
		b.WriteString("assistant:")
	}
	return b.String(), plain, nil
}

// testServer is a server on a loopback port over the tiny model.
type testServer struct {
	*Server
	t    testing.TB
	e    *actors.Engine
	addr string
	tok  *tokenizer.Tokenizer
	dump *lockedBuffer
}

// lockedBuffer takes dump lines.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// setup is what a test may change before its server starts.
type setup struct {
	engine actors.Config
	http   Config
	dump   bool
	listen func(net.Listener) net.Listener
}

func startServer(t testing.TB, change ...func(*setup)) *testServer {
	t.Helper()
	u := setup{
		engine: actors.Config{
			ModelName: "tiny", MaxModelLen: 1024, MaxSeqs: 8, MaxBatchedTokens: 64, BlockSize: 16, NumBlocks: 256,
			PrefixCache: true, KVType: kernels.F32, MaxQueuedReqs: 64, Intakes: 2, Detokenizers: 2, OnCPU: true,
			OnFatal: func(err error) { panic(err) },
		},
		http: Config{
			Names: []string{"tiny", "alias"}, OverloadStatus: 503, Version: "test", Chat: tinyChat{},
			Defaults: actors.DefaultSampling(), Created: time.Unix(1700000000, 0),
		},
		listen: func(l net.Listener) net.Listener { return l },
	}
	for _, f := range change {
		f(&u)
	}
	s := &testServer{t: t, dump: &lockedBuffer{}}
	if u.dump {
		u.engine.Dump = s.dump
	}
	b, err := cpu.New(cpu.Options{Threads: 1, Math: cpu.F32})
	if err != nil {
		t.Fatal(err)
	}
	src, err := model.Open(tinyFolder)
	if err != nil {
		t.Fatal(err)
	}
	if s.tok, err = tokenizer.FromHF(src.TokenizerJSON, src.TokenizerConfigJSON); err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(src, b, model.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if s.e, err = actors.New(u.engine, m, s.tok); err != nil {
		t.Fatal(err)
	}
	u.http.Engine = s.e
	if s.Server, err = New(u.http); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = ln.Addr().String()
	served := make(chan error, 1)
	wrapped := u.listen(ln)
	go func() { served <- s.Serve(wrapped) }()
	t.Cleanup(func() {
		s.quiet()
		ctx, cancel := context.WithTimeout(context.Background(), liveness)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
		if err := s.e.Close(); err != nil {
			t.Error(err)
		}
		b.Close()
	})
	return s
}

// quiet waits until no request is under way.
func (s *testServer) quiet() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), liveness)
	defer cancel()
	if err := s.e.Wait(ctx); err != nil {
		used, _ := s.e.Load()
		s.t.Fatalf("requests still under way, %d places in use", used)
	}
	if used, _ := s.e.Load(); used != 0 {
		s.t.Errorf("%d places in use at rest", used)
	}
}

// eventually waits until what holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(liveness); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", liveness, what)
		}
	}
}

// metric returns the value of a series, the sum over its labels that contain
// all of with.
func (s *testServer) metric(name string, with ...string) float64 {
	s.t.Helper()
	sum, found := 0.0, false
	for _, l := range strings.Split(s.get("/metrics").text(), "\n") {
		series, value, ok := strings.Cut(l, "} ")
		got, labels, _ := strings.Cut(series, "{")
		if !ok || got != name {
			continue
		}
		match := true
		for _, w := range with {
			match = match && strings.Contains(labels, w)
		}
		if match {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				s.t.Fatalf("metric %s: %v", name, err)
			}
			sum, found = sum+v, true
		}
	}
	if !found {
		s.t.Fatalf("no series %s %v", name, with)
	}
	return sum
}

// golden is a prompt of the tiny model and the tokens that must follow.
type golden struct {
	IDs    []int32 `json:"ids"`
	Tokens []int32 `json:"tokens"`
}

func goldens(t testing.TB) []golden {
	t.Helper()
	b, err := os.ReadFile(tinyFolder + "/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Prompts []golden `json:"prompts"`
	}
	if err := json.Unmarshal(b, &f); err != nil || len(f.Prompts) == 0 {
		t.Fatalf("golden.json: %v, %d prompts", err, len(f.Prompts))
	}
	return f.Prompts
}

func TestShutdownBeforeServeEndsIt(t *testing.T) {
	s := startServer(t)
	other, err := New(Config{Engine: s.e, Names: []string{"m"}, OverloadStatus: 503})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- other.Serve(ln) }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("Serve after Shutdown: %v", err)
		}
	case <-time.After(liveness):
		t.Error("Serve goes on after Shutdown")
	}
}
