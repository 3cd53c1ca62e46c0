// Command yardstick is a server of OpenAI's API that computes nothing: it answers
// each request after fixed times and prints what it measured of its own, as a
// TTFTSPLIT line. What a client measures beyond that is the client's, its
// library's and the machine's. While a request is open one thread is busy, as a
// CPU backend's would be.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

var (
	ttft = flag.Duration("ttft", 30*time.Millisecond, "time to the first token")
	itl  = flag.Duration("itl", 10*time.Millisecond, "time between tokens")
	name = flag.String("model", "smollm2", "the model's name")

	open    atomic.Int64
	lastRID atomic.Int64
)

func main() {
	flag.Parse()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, "yardstick:", err)
		os.Exit(1)
	}
	fmt.Fprintf(os.Stderr, "ready: yardstick, http://%s\n", ln.Addr())
	go compute()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"object":"model","created":0,"owned_by":"yardstick"}]}`, *name)
	})
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /v1/chat/completions", answer)
	mux.HandleFunc("POST /v1/completions", answer)
	panic(http.Serve(ln, mux))
}

// compute keeps one thread busy while requests are open.
func compute() {
	for {
		if open.Load() == 0 {
			time.Sleep(100 * time.Microsecond)
			continue
		}
		for end := time.Now().Add(5 * time.Millisecond); time.Now().Before(end); {
		}
	}
}

// answer streams as many tokens as were asked for, each when it is due.
func answer(w http.ResponseWriter, r *http.Request) {
	arrived := time.Now()
	open.Add(1)
	defer open.Add(-1)
	var body struct {
		MaxTokens     int            `json:"max_tokens"`
		MaxCompletion int            `json:"max_completion_tokens"`
		Options       map[string]any `json:"stream_options"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	n := max(body.MaxTokens, body.MaxCompletion, 2)
	rid := r.Header.Get("X-Request-Id")
	if rid == "" {
		rid = fmt.Sprintf("y%d", lastRID.Add(1))
	}
	object, prefix, delta := "text_completion", "cmpl-", `"text":" word"`
	if r.URL.Path == "/v1/chat/completions" {
		object, prefix, delta = "chat.completion.chunk", "chatcmpl-", `"delta":{"role":"assistant","content":" word"}`
	}
	w.Header().Set("Content-Type", "text/event-stream")
	event := func(choices, usage string) {
		fmt.Fprintf(w, "data: {\"id\":\"%s%s\",\"object\":%q,\"created\":0,\"model\":%q,\"choices\":[%s]%s}\n\n", prefix, rid, object, *name, choices, usage)
		w.(http.Flusher).Flush()
	}
	var first, last time.Duration
	due := arrived.Add(*ttft)
	for i := range n {
		time.Sleep(time.Until(due))
		due = due.Add(*itl)
		event(fmt.Sprintf(`{"index":0,%s,"finish_reason":null}`, delta), "")
		if last = time.Since(arrived); i == 0 {
			first = last
		}
	}
	event(fmt.Sprintf(`{"index":0,%s,"finish_reason":"length"}`, map[bool]string{true: `"delta":{}`, false: `"text":""`}[object != "text_completion"]), "")
	if body.Options["include_usage"] == true {
		event("", fmt.Sprintf(`,"usage":{"prompt_tokens":40,"completion_tokens":%d,"total_tokens":%d}`, n, n+40))
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	fmt.Fprintf(os.Stderr, "TTFTSPLIT rid=%s ttft=%.3f decode=%.3f out=%d reason=length\n", rid, ms(first), ms(last-first), n)
}
