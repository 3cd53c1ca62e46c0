package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"waybill/httpapi"
)

// serveCmd holds the flags of `waybill serve`, named as vLLM's.
type serveCmd struct {
	Model string `arg:"" help:"A .gguf file or a Hugging Face model folder."`

	Host            string   `default:"127.0.0.1" help:"Address to listen on."`
	Port            int      `default:"8000" help:"Port to listen on; 0 takes a free one."`
	ServedModelName []string `help:"Names that requests may use; the first is reported. Default: the file's or folder's name."`
	APIKey          string   `name:"api-key" help:"If set, /v1 paths, /tokenize, /detokenize and the console's API need it as a bearer token."`

	SSLCertfile string `name:"ssl-certfile" help:"Certificate chain (PEM): serve HTTPS. Needs --ssl-keyfile."`
	SSLKeyfile  string `name:"ssl-keyfile" help:"Private key (PEM) of --ssl-certfile."`
	UDS         string `name:"uds" help:"Listen on this Unix socket instead of a port; only its owner may connect."`

	MaxModelLen          int     `help:"Longest prompt plus output in tokens. Default: the model's own."`
	MaxNumSeqs           int     `default:"-1" help:"Sequences that run at once. -1: 32 on a CPU, 256 on a GPU."`
	MaxNumBatchedTokens  int     `default:"-1" help:"Tokens of one step. -1: 2048 on a CPU, 8192 on a GPU."`
	BlockSize            int     `default:"16" help:"Tokens in a KV block."`
	KVCacheMemoryBytes   string  `name:"kv-cache-memory-bytes" help:"Memory for the KV cache, taken at the start; suffixes KiB, MiB, GiB. Default: 1GiB on a CPU; on a GPU what --gpu-memory-utilization leaves."`
	GPUMemoryUtilization float64 `name:"gpu-memory-utilization" default:"0.9" help:"Share of the GPU's memory to use."`
	KVCacheDtype         string  `name:"kv-cache-dtype" default:"auto" enum:"auto, f32, f16, bf16" help:"Type of cached keys and values: ${enum}."`
	EnablePrefixCaching  bool    `default:"true" negatable:"" help:"Reuse KV blocks of equal prompt beginnings."`
	PrefillChunkMs       int     `default:"0" help:"Longest prefill chunk while others stream, in ms. 0: 40 on a CPU, 50 on a GPU."`

	MaxNumQueuedReqs   int           `default:"256" help:"Sequences waiting and running, in all."`
	MaxNumQueuedTokens int           `default:"0" help:"Prompt tokens of sequences without a first token. 0: no bound."`
	OverloadStatus     int           `default:"503" enum:"429, 503" help:"HTTP status of a refusal: ${enum}."`
	SSEKeepAlive       int           `name:"sse-keep-alive-interval" default:"0" help:"Seconds between comments in silent streams. 0: none."`
	PerRequestMetrics  bool          `name:"enable-per-request-metrics" help:"Add timings to the usage event of streams."`
	DrainGrace         time.Duration `default:"2s" help:"After SIGTERM: how long new requests are still served."`
	ShutdownTimeout    time.Duration `default:"30s" help:"After the grace: how long running requests may go on."`

	LogFormat          string `default:"text" enum:"text, json, none" help:"One line per sequence on stderr: ${enum}."`
	OtlpTracesEndpoint string `name:"otlp-traces-endpoint" help:"OTLP/HTTP URL for traces, such as http://127.0.0.1:4318/v1/traces."`

	Console            bool          `help:"Serve /console on an address that is not loopback too; needs --api-key."`
	ConsoleActions     bool          `help:"Let the console cancel requests and drain; each is logged."`
	ConsoleShowContent bool          `help:"Let the console show prompts and outputs."`
	StuckAfter         time.Duration `default:"1s" help:"A handler or step that runs longer is reported as stuck, with its stack."`

	Device     string `default:"auto" enum:"auto, cpu, cuda" help:"Where to compute: ${enum}."`
	Threads    int    `default:"0" help:"Compute threads. 0: one per core."`
	CPUMath    string `name:"cpu-math" default:"int8" enum:"int8, f32" help:"Arithmetic of quantized weights on the CPU: ${enum}."`
	LoadFormat string `default:"auto" enum:"auto, dummy" help:"Where weights come from, of ${enum}: dummy reads the config only and makes them up."`
}

// Run loads the model and serves it until a signal.
func (c *serveCmd) Run() error {
	// Without this the end of whoever reads stderr, such as a log collector, ends
	// the server with it; with it a line is lost and counted.
	signal.Ignore(syscall.SIGPIPE)
	console, err := c.console()
	if err != nil {
		return exitError{2, err}
	}
	s, err := c.load()
	if err != nil {
		return exitError{2, err}
	}
	ln, at, err := c.listen()
	if err != nil {
		return exitError{2, err}
	}
	srv, err := httpapi.New(httpapi.Config{
		Engine: s.engine, Names: s.names, APIKey: c.APIKey, OverloadStatus: c.OverloadStatus,
		Version: version, Chat: s.chat, Defaults: s.defaults, Created: time.Now(),
		PerRequestMetrics: c.PerRequestMetrics, Console: console,
	})
	if err != nil {
		return exitError{2, err}
	}
	// Before the line that says so: whoever reads it may send a signal at once, and
	// one that nobody has asked for ends the process.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	fmt.Fprintf(os.Stderr, "ready: %s, %s\n", s.line, at)
	return c.serveUntilSignal(srv, ln, s, signals)
}

// dumpWanted reads VT_TTFT_DUMP.
func dumpWanted(v string) (bool, error) {
	switch v {
	case "", "0":
		return false, nil
	case "1":
		return true, nil
	}
	return false, fmt.Errorf("VT_TTFT_DUMP is %q: must be 1 or 0", v)
}
