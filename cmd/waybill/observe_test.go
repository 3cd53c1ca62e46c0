package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	v1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// collect is an OTLP/HTTP collector; it hands each span to the channel.
func collect(t *testing.T) (url string, spans chan *v1.Span) {
	spans = make(chan *v1.Span, 1000)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var req collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &req)
		}
		if err != nil {
			t.Errorf("collector: %v", err)
		}
		for _, rs := range req.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					spans <- s
				}
			}
		}
	}))
	t.Cleanup(srv.Close)
	return srv.URL + "/v1/traces", spans
}

func TestTracesJoinTheClientsAndTellTheDumpsNumbers(t *testing.T) {
	url, spans := collect(t)
	p := serveDefault(t, []string{"VT_TTFT_DUMP=1"}, "--otlp-traces-endpoint", url, "--drain-grace", "0s", "--log-format", "json")
	req, err := http.NewRequestWithContext(context.Background(), "POST", p.url+"/v1/completions",
		strings.NewReader(`{"prompt":"The capital of France is","max_tokens":5,"temperature":0,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Request-Id", "traced")
	req.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	res.Body.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if got := p.exit(); got != 0 {
		t.Fatalf("exit status %d: %s", got, p.log())
	}
	close(spans)
	byName := map[string]*v1.Span{}
	for s := range spans {
		byName[s.Name] = s
	}
	root := byName["llm_request"]
	if root == nil {
		t.Fatalf("no span llm_request among %d", len(byName))
	}
	if got := fmt.Sprintf("%x %x", root.TraceId, root.ParentSpanId); got != "0af7651916cd43dd8448eb211c80319c b7ad6b7169203331" {
		t.Errorf("the client's trace is not continued: %s", got)
	}
	if root.Kind != v1.Span_SPAN_KIND_SERVER {
		t.Errorf("kind %v, want server", root.Kind)
	}
	attrs := map[string]float64{}
	for _, a := range root.Attributes {
		attrs[a.Key] = a.Value.GetDoubleValue()
		if i := a.Value.GetIntValue(); i != 0 {
			attrs[a.Key] = float64(i)
		}
	}
	dump := parseDump(t, p.log())["traced"]
	for key, part := range map[string]string{
		"gen_ai.latency.time_to_first_token": "ttft", "gen_ai.latency.e2e": "e2e", "gen_ai.latency.time_in_queue": "queued",
		"gen_ai.latency.time_in_model_prefill": "prefill", "gen_ai.latency.time_in_model_decode": "decode",
	} {
		if got, want := attrs[key]*1e3, dump[part]; want == 0 || math.Abs(got-want) > 0.0015 {
			t.Errorf("%s is %.3f ms, the dump's %s %.3f ms", key, got, part, want)
		}
	}
	if attrs["gen_ai.usage.completion_tokens"] != 5 || attrs["gen_ai.usage.prompt_tokens"] != 5 {
		t.Errorf("usage: %v", attrs)
	}
	var sum uint64
	for _, name := range []string{"receive", "decode_json", "reserve", "render", "tokenize", "hop", "queued", "prefill", "egress"} {
		s := byName[name]
		if s == nil {
			t.Errorf("no child span %s", name)
			continue
		}
		if string(s.ParentSpanId) != string(root.SpanId) {
			t.Errorf("span %s is not a child of llm_request", name)
		}
		sum += s.EndTimeUnixNano - s.StartTimeUnixNano
	}
	if got, want := float64(sum)/1e6, dump["ttft"]; math.Abs(got-want) > 0.01 {
		t.Errorf("child spans add up to %.3f ms, ttft is %.3f ms", got, want)
	}
	checkRequestLog(t, p.log(), dump)
}

// checkRequestLog finds the request's line in a JSON log and compares it with
// the dump.
func checkRequestLog(t *testing.T, log string, dump map[string]float64) {
	t.Helper()
	lines := 0
	for _, l := range strings.Split(log, "\n") {
		if !strings.HasPrefix(l, "{") {
			continue
		}
		var v map[string]any
		if err := json.Unmarshal([]byte(l), &v); err != nil {
			t.Errorf("log line is not JSON: %s", l)
			continue
		}
		if v["rid"] != "traced" {
			continue
		}
		lines++
		if v["ttft_ms"] != dump["ttft"] || v["e2e_ms"] != dump["e2e"] || v["reason"] != "length" {
			t.Errorf("log line %s, dump %v", l, dump)
		}
	}
	if lines != 1 {
		t.Errorf("%d log lines for one request", lines)
	}
}

func TestWrongTraceEndpointIsAStartUpError(t *testing.T) {
	p := start(t, nil, "serve", tinyModel, "--port", "0", "--otlp-traces-endpoint", "nonsense")
	if got := p.exit(); got != 2 || !strings.Contains(p.log(), "--otlp-traces-endpoint") {
		t.Errorf("exit status %d: %s", got, p.log())
	}
}

func TestUnreachableCollectorHoldsNothing(t *testing.T) {
	p := serveDefault(t, nil, "--otlp-traces-endpoint", "http://127.0.0.1:9/v1/traces", "--drain-grace", "0s")
	began := time.Now()
	if a, err := p.post(context.Background(), "/v1/completions", "x", `{"prompt":"Hi","max_tokens":2}`); err != nil || a.status != 200 {
		t.Fatalf("status %d, %v", a.status, err)
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if got := p.exit(); got != 0 {
		t.Errorf("exit status %d", got)
	}
	if d := time.Since(began); d > 30*time.Second {
		t.Errorf("it took %v", d)
	}
}

// What goes wrong with a collector is a line of the log, in the log's format.
func TestErrorsOfTracesAreLinesOfTheLog(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusBadRequest) }))
	defer srv.Close()
	p := start(t, nil, "serve", tinyModel, "--port", "0", "--otlp-traces-endpoint", srv.URL+"/v1/traces", "--drain-grace", "0s", "--log-format", "json")
	p.ready()
	if a, err := p.post(context.Background(), "/v1/completions", "x", `{"prompt":"Hi","max_tokens":2}`); err != nil || a.status != 200 {
		t.Fatalf("status %d, %v", a.status, err)
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // what is queued is sent before the end
	if got := p.exit(); got != 0 {
		t.Errorf("exit status %d", got)
	}
	told := false
	for _, l := range strings.Split(strings.TrimSpace(p.log()), "\n") {
		var v map[string]any
		if strings.HasPrefix(l, "ready: ") {
			continue
		}
		if err := json.Unmarshal([]byte(l), &v); err != nil {
			t.Errorf("not JSON: %s", l)
		}
		told = told || v["msg"] == "traces" && v["error"] != nil
	}
	if !told {
		t.Errorf("no line tells of the collector's refusal: %s", p.log())
	}
}
