package gpureport

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// gpuName asks the driver's tool; without it the name is unknown.
func gpuName(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").Output()
	if err != nil {
		return "unknown"
	}
	name, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(name)
}

// test runs tests of a binary of the bundle in folder and returns what they say; the
// log is kept.
func (o *Options) test(ctx context.Context, binary, folder, tests string, args ...string) (string, error) {
	path, err := filepath.Abs(filepath.Join(o.Folder, binary))
	if err != nil {
		return "", err
	}
	c := exec.CommandContext(ctx, path, append([]string{"-test.v", "-test.run", tests}, args...)...)
	c.Dir = filepath.Join(o.Folder, folder)
	out, err := c.CombinedOutput()
	name, _, _ := strings.Cut(tests, "|")
	if e := os.WriteFile(filepath.Join(o.Dir, name+".log"), out, 0o644); e != nil {
		return "", e
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", tests, err)
	}
	return string(out), err
}

func conformance(ctx context.Context, o *Options, r *Report) error {
	out, err := o.test(ctx, "kernels.test", ".", "TestKernels|TestSteps|TestDummy|TestLogits|TestOpen|TestDraws|TestNoMemory|TestEveryAllocation|TestAStep|TestAnError")
	r.Checks = checksOf(out)
	return err
}

var checkLine = regexp.MustCompile(`(?m)^ *--- (PASS|FAIL): (\S+)`)

// checksOf finds the outcomes of tests and of their parts, but not of parts of parts.
func checksOf(out string) (checks []Check) {
	for _, m := range checkLine.FindAllStringSubmatch(out, -1) {
		if strings.Count(m[2], "/") <= 1 || m[1] == "FAIL" {
			checks = append(checks, Check{m[2], m[1] == "PASS"})
		}
	}
	return checks
}

func goldens(ctx context.Context, o *Options, r *Report) error {
	out, err := o.test(ctx, "model.test", "model", "TestTinyModelsOnTheGPU")
	r.Goldens = goldensOf(out)
	return err
}

var goldenLine = regexp.MustCompile(`: (\w+), ([\w ]+): (\d+) tokens differ, transformers (\d+) of (\d+).*margins \[(.*)\]`)

func goldensOf(out string) (g []Golden) {
	for _, m := range goldenLine.FindAllStringSubmatch(out, -1) {
		g = append(g, Golden{Model: m[1], How: m[2], Differ: whole(m[3]), Allowed: whole(m[4]), Of: whole(m[5]), Margins: m[6]})
	}
	return g
}

func steps(ctx context.Context, o *Options, r *Report) error {
	rate, err := o.test(ctx, "kernels.test", ".", "TestMatrixRate")
	if err != nil {
		return err
	}
	if m := rateLine.FindStringSubmatch(rate); m != nil {
		r.MatrixRate = decimal(m[1])
	}
	out, err := o.test(ctx, "model.test", "model", "TestStepTimes")
	r.Steps = stepsOf(out)
	for i := range r.Steps {
		r.Steps[i].OfRate = ofRate(&r.Steps[i], r.MatrixRate)
	}
	return err
}

var (
	rateLine    = regexp.MustCompile(`matrix rate (\d+) TFLOP/s`)
	prefillWhat = regexp.MustCompile(`^prefill (\d+)$`)
)

// linear is the number of weights of a shape that every token of a prompt meets.
var linear = map[string]float64{
	"Qwen3-0.6B": 28 * (4096*1024 + 2048*1024 + 3*3072*1024),
	"Qwen3-8B":   36 * (6144*4096 + 4096*4096 + 3*12288*4096),
}

// ofRate returns the share of rate, in percent, at which a prefill does its products;
// attention counts as time without work.
func ofRate(s *Step, rate float64) float64 {
	m := prefillWhat.FindStringSubmatch(s.What)
	if m == nil || rate == 0 || s.Device == 0 {
		return 0
	}
	return 100 * 2 * linear[s.Shape] * decimal(m[1]) / (s.Device / 1e3) / (rate * 1e12)
}

var stepLine = regexp.MustCompile(`: (\S+) ((?:decode|prefill) .*?) +device +([\d.]+) ms, wall +([\d.]+) ms .*idle between steps ([\d.]+) µs \(p99 ([\d.]+)\)`)

// stepsOf finds the times of the engine's own settings: the first of each shape.
func stepsOf(out string) (s []Step) {
	seen := map[string]bool{}
	for _, m := range stepLine.FindAllStringSubmatch(out, -1) {
		if seen[m[1]+m[2]] {
			continue
		}
		seen[m[1]+m[2]] = true
		s = append(s, Step{Shape: m[1], What: m[2], Device: decimal(m[3]), Wall: decimal(m[4]), Idle: decimal(m[5]), P99: decimal(m[6])})
	}
	return s
}

// whole and decimal convert what a pattern has checked.
func whole(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

func decimal(s string) float64 {
	f, _ := strconv.ParseFloat(s, 64)
	return f
}
