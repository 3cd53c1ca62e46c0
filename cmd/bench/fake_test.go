package bench

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// fake is a server of OpenAI's API whose answers are scripted.
type fake struct {
	*httptest.Server
	answer   func(w *stream, n int, body map[string]any) // for the n-th completion
	tokenize bool                                        // serve /tokenize, a token a word
	metrics  func() string

	mu     sync.Mutex
	bodies []map[string]any
	header []http.Header

	open, mostOpen atomic.Int64
	arrivals       []time.Time
}

// stream writes events.
type stream struct {
	http.ResponseWriter
}

// raw sends bytes as they are, at once.
func (s *stream) raw(text string) {
	_, _ = s.Write([]byte(text))
	s.ResponseWriter.(http.Flusher).Flush()
}

func (s *stream) begin() { s.Header().Set("Content-Type", "text/event-stream"); s.WriteHeader(200) }

// text sends a completion event.
func (s *stream) text(text string) {
	s.raw(fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"text\":%q,\"finish_reason\":null}]}\n\n", text))
}

// delta sends a chat event.
func (s *stream) delta(fields string) {
	s.raw(fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"delta\":{%s}}]}\n\n", fields))
}

// end sends the finish, the usage and the end.
func (s *stream) end(in, out int) {
	s.raw("data: {\"choices\":[{\"index\":0,\"text\":\"\",\"delta\":{},\"finish_reason\":\"length\"}]}\n\n" +
		fmt.Sprintf("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d}}\n\ndata: [DONE]\n\n", in, out))
}

func newFake(t *testing.T, answer func(w *stream, n int, body map[string]any)) *fake {
	t.Helper()
	f := &fake{answer: answer}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

// ServeHTTP serves what a client may ask.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	arrived := time.Now()
	switch r.URL.Path {
	case "/v1/models":
		_, _ = w.Write([]byte(`{"data":[{"id":"fake"}]}`))
	case "/metrics":
		if f.metrics == nil {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(f.metrics()))
	case "/tokenize":
		var b struct {
			Prompt string `json:"prompt"`
		}
		if !f.tokenize || json.NewDecoder(r.Body).Decode(&b) != nil {
			http.NotFound(w, r)
			return
		}
		tokens := make([]int, len(strings.Fields(b.Prompt)))
		_ = json.NewEncoder(w).Encode(map[string]any{"tokens": tokens, "count": len(tokens)})
	default:
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		f.mu.Lock()
		n := len(f.bodies)
		f.bodies = append(f.bodies, body)
		f.header = append(f.header, r.Header.Clone())
		f.arrivals = append(f.arrivals, arrived)
		f.mu.Unlock()
		now := f.open.Add(1)
		for most := f.mostOpen.Load(); now > most && !f.mostOpen.CompareAndSwap(most, now); most = f.mostOpen.Load() {
		}
		defer f.open.Add(-1)
		f.answer(&stream{w}, n, body)
	}
}

// quick answers every request at once with three tokens.
func quick(w *stream, _ int, body map[string]any) {
	w.begin()
	w.text("a")
	w.text("b")
	w.end(promptWords(body), 3)
}

// promptWords counts the words of a request's prompt.
func promptWords(body map[string]any) int {
	text, _ := body["prompt"].(string)
	return len(strings.Fields(text))
}

// options are those of a small run against the fake.
func (f *fake) options() Options {
	zero := 0.0
	return Options{
		Backend: "openai", BaseURL: f.URL, Temperature: &zero, NumPrompts: 4, RequestRate: inf, Burstiness: 1,
		Dataset:           Dataset{Name: "random", InputLen: 8, OutputLen: 3},
		PercentileMetrics: []string{"ttft", "tpot", "itl", "e2el"}, MetricPercentiles: []float64{99},
		ReadyCheckTimeout: 5 * time.Second,
	}
}

// ask streams one request to the fake.
func (f *fake) ask(t *testing.T) *Record {
	t.Helper()
	c, err := newClient(f.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	r := &Record{Due: time.Now()}
	c.stream(t.Context(), "/v1/completions", "rid-1", []byte(`{"prompt":"a b"}`), r)
	return r
}
