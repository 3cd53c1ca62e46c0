package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"

	"waybill/actors"
)

// exportPatience is how long the last spans may take when the process ends.
const exportPatience = 3 * time.Second

// observers are what a server prints and exports per request besides metrics.
type observers struct {
	lines *actors.LineWriter
	spans *sdktrace.TracerProvider // nil: no traces
}

// observe sets up the dump, the request log and traces in cfg.
func (c *serveCmd) observe(cfg *actors.Config, dump bool) (*observers, error) {
	o := &observers{lines: actors.NewLineWriter(os.Stderr)}
	cfg.LinesDropped = o.lines.Dropped
	if dump {
		cfg.Dump = o.lines
	}
	switch c.LogFormat {
	case "text":
		cfg.Log = slog.New(slog.NewTextHandler(o.lines, nil))
	case "json":
		cfg.Log = slog.New(slog.NewJSONHandler(o.lines, nil))
	}
	if c.OtlpTracesEndpoint == "" {
		return o, nil
	}
	u, err := url.Parse(c.OtlpTracesEndpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("--otlp-traces-endpoint %q is not a URL such as http://127.0.0.1:4318/v1/traces", c.OtlpTracesEndpoint)
	}
	exporter, err := otlptracehttp.New(context.Background(), otlptracehttp.WithEndpointURL(c.OtlpTracesEndpoint))
	if err != nil {
		return nil, fmt.Errorf("--otlp-traces-endpoint: %w", err)
	}
	o.spans = sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithResource(resource.NewSchemaless(semconv.ServiceName("waybill"), semconv.ServiceVersion(version))),
	)
	cfg.Tracer = o.spans.Tracer("waybill")
	// Without a handler the exporter would print lines of its own, in no format of ours.
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.NewTextHandler(o.lines, nil))
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces", "error", err) }))
	return o, nil
}

// close writes what is queued.
func (o *observers) close() {
	if o.spans != nil {
		ctx, cancel := context.WithTimeout(context.Background(), exportPatience)
		defer cancel()
		_ = o.spans.Shutdown(ctx)
	}
	_ = o.lines.Close()
}
