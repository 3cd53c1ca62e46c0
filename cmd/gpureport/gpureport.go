// Package gpureport runs on a GPU machine, without Go, what says how good the GPU's
// side is: conformance of the kernels, the golden tokens, times of steps, and a
// server under load. It writes report.json and report.md.
package gpureport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Parts are the pieces of a report, in the order in which they run.
var Parts = []string{"conformance", "goldens", "parity", "batches", "loading", "steps", "serve", "probe", "gaps", "intake"}

// limit bounds a whole report.
const limit = 8 * time.Minute

// Options says what to run.
type Options struct {
	// Folder is the unpacked bundle: waybill-cuda, test binaries, model folders.
	Folder string
	// Only names parts; none means all.
	Only []string
	// Dir gets report.json, report.md and the logs.
	Dir string
	Log io.Writer
}

// Report is what is written as report.json.
type Report struct {
	Date    string   `json:"date"`
	GPU     string   `json:"gpu"`
	Seconds float64  `json:"seconds"`
	Checks  []Check  `json:"checks,omitempty"`
	Goldens []Golden `json:"goldens,omitempty"`
	Parity  []Parity `json:"parity,omitempty"`
	Batches []Batch  `json:"batches,omitempty"`
	Steps   []Step   `json:"steps,omitempty"`
	// MatrixRate is that of one large product in bf16, in TFLOP/s.
	MatrixRate float64           `json:"matrix_tflops,omitempty"`
	Loads      []Load            `json:"loads,omitempty"`
	Probes     []Load            `json:"probes,omitempty"`
	Gaps       []Gap             `json:"device_idle,omitempty"`
	Intake     []Intake          `json:"intake,omitempty"`
	Loading    []Loading         `json:"loading,omitempty"`
	Ready      map[string]int64  `json:"start_to_ready_ms,omitempty"`
	Failed     map[string]string `json:"failed,omitempty"`
	Skipped    map[string]string `json:"skipped,omitempty"`
}

// Check is the outcome of one conformance test.
type Check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
}

// Golden is one comparison of a tiny model with its golden tokens.
type Golden struct {
	Model   string `json:"model"`
	How     string `json:"how"`
	Differ  int    `json:"differ"`
	Allowed int    `json:"allowed"`
	Of      int    `json:"of"`
	Margins string `json:"margins"`
}

// Step is the time of one kind of step, in ms, and the idle time before it in µs.
type Step struct {
	Shape  string  `json:"shape"`
	What   string  `json:"what"`
	Device float64 `json:"device_ms"`
	Wall   float64 `json:"wall_ms"`
	Idle   float64 `json:"idle_us"`
	P99    float64 `json:"idle_p99_us"`
	// OfRate is, for a prefill, its products' share of MatrixRate in percent.
	OfRate float64 `json:"of_matrix_rate,omitempty"`
}

// Load is a run of the load generator or of the phase probe, with its result file.
type Load struct {
	Shape  string         `json:"shape"`
	What   string         `json:"what"`
	Result map[string]any `json:"result"`
}

// ErrFailed is returned, after the report was written, if a part failed.
var ErrFailed = errors.New("gpu-report: a part failed, see the report")

// Run runs the parts and writes the report.
func Run(ctx context.Context, o Options) error {
	for _, part := range o.Only {
		if !slices.Contains(Parts, part) {
			return fmt.Errorf("gpu-report: no part %q, there are %s", part, strings.Join(Parts, ", "))
		}
	}
	if _, err := os.Stat(filepath.Join(o.Folder, "kernels.test")); err != nil {
		return fmt.Errorf("gpu-report: run it from the bundle's folder (make cuda-bundle): %w", err)
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return fmt.Errorf("gpu-report: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	from := time.Now()
	r := &Report{Date: from.Format(time.RFC3339), GPU: gpuName(ctx), Ready: map[string]int64{}, Failed: map[string]string{}, Skipped: map[string]string{}}
	run := map[string]func(context.Context, *Options, *Report) error{
		"conformance": conformance, "goldens": goldens, "parity": parity, "batches": batches, "steps": steps, "serve": serve, "probe": probe,
		"loading": loading, "gaps": gaps, "intake": intake,
	}
	for _, part := range Parts {
		if len(o.Only) > 0 && !slices.Contains(o.Only, part) {
			continue
		}
		began := time.Now()
		if err := run[part](ctx, &o, r); err != nil {
			r.Failed[part] = err.Error()
			fmt.Fprintf(o.Log, "%s: %v\n", part, err)
		}
		fmt.Fprintf(o.Log, "%s: %.0f s\n", part, time.Since(began).Seconds())
	}
	r.Seconds = time.Since(from).Seconds()
	if err := r.write(o.Dir); err != nil {
		return err
	}
	if len(r.Failed) > 0 {
		return ErrFailed
	}
	return nil
}

// write writes both forms.
func (r *Report) write(dir string) error {
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("gpu-report: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "report.json"), append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("gpu-report: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "report.md"), []byte(r.Markdown()), 0o644); err != nil {
		return fmt.Errorf("gpu-report: %w", err)
	}
	return nil
}
