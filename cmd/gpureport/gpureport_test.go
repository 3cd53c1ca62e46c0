package gpureport

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
)

const log = `=== RUN   TestStepTimes
    cuda_test.go:204: Qwen3-8B decode 1 x 300         device    4.460 ms, wall    4.474 ms (p99 4.482), idle between steps 9.1 µs (p99 36.0)
    cuda_test.go:204: Qwen3-8B prefill 64             device    5.350 ms, wall    5.400 ms (p99 5.482), idle between steps 20.5 µs (p99 30.0)
    cuda_test.go:204: Qwen3-8B decode 1 x 300         device    9.999 ms, wall    9.999 ms (p99 4.482), idle between steps 9.1 µs (p99 36.0)
    cuda_test.go:80: llama, token by token: 2 tokens differ, transformers 4 of 192 (noise 0.354); margins [one/12 0.015 mixed/5 0.022]
    cuda_test.go:80: qwen3_tied, at once: 0 tokens differ, transformers 9 of 192 (noise 0.338); margins []
--- FAIL: TestKernels (1.00s)
    --- PASS: TestKernels/Rows (0.10s)
    --- FAIL: TestKernels/Rope (0.10s)
        --- PASS: TestKernels/Rope/64 (0.10s)
        --- FAIL: TestKernels/Rope/128 (0.10s)
`

func TestReadsWhatTestsSay(t *testing.T) {
	steps := stepsOf(log)
	if len(steps) != 2 || steps[0] != (Step{Shape: "Qwen3-8B", What: "decode 1 x 300", Device: 4.46, Wall: 4.474, Idle: 9.1, P99: 36}) || steps[1].What != "prefill 64" {
		t.Errorf("steps %+v", steps)
	}
	golden := goldensOf(log)
	if len(golden) != 2 || golden[0] != (Golden{"llama", "token by token", 2, 4, 192, "one/12 0.015 mixed/5 0.022"}) || golden[1].Margins != "" {
		t.Errorf("goldens %+v", golden)
	}
	checks := checksOf(log)
	if len(checks) != 4 || checks[1] != (Check{"TestKernels/Rows", true}) || checks[3] != (Check{"TestKernels/Rope/128", false}) {
		t.Errorf("checks %+v", checks)
	}
}

func TestMarkdownHasEveryPart(t *testing.T) {
	r := &Report{
		GPU: "a GPU", Checks: checksOf(log), Goldens: goldensOf(log), Steps: stepsOf(log), Failed: map[string]string{"probe": "lost\nmore"},
		Loads:  []Load{{"Qwen3-8B", "64 in", map[string]any{"median_ttft_ms": 6.04, "failed": 0.0}}},
		Probes: []Load{{"Qwen3-8B", "8 streams", map[string]any{"mean_ledger_wait_steps": 0.5}}},
		Ready:  map[string]int64{"Qwen3-8B": 1800},
		Gaps:   []Gap{{Shape: "Qwen3-8B", Streams: 8, Membership: "changed", Steps: 80, P50: 21.25, P99: 30, Mean: 22}},
		Intake: []Intake{{Shape: "Qwen3-8B", Rate: 12, N: 100, Prompt: 1024, P50: 0.3, P99: 0.7, Max: 0.9}},
	}
	text := r.Markdown()
	for _, want := range []string{
		"**probe failed**: lost\n", "1 of 4 tests passed", "TestKernels/Rope/128", "| llama | token by token | 2 | 4 | 192 |",
		"| Qwen3-8B | prefill 64 | 5.35 |", "| Qwen3-8B | 64 in | 6.04 | – |", "| 0 |", "8 streams", "0.500", "| Qwen3-8B | 8 | changed | 80 | 21.2 | 30.0 | 22.0 | 0.0 |", "| Qwen3-8B | 12.0 | 100 | 1024 | 0.3 | 0.7 | 0.9 |", "in 1800 ms",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

func TestRunRefusesWhatIsNotThere(t *testing.T) {
	if err := Run(t.Context(), Options{Folder: t.TempDir(), Dir: t.TempDir(), Only: []string{"nothing"}, Log: io.Discard}); err == nil {
		t.Error("a part that does not exist: no error")
	}
	if err := Run(t.Context(), Options{Folder: t.TempDir(), Dir: t.TempDir(), Log: io.Discard}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no bundle: %v", err)
	}
}

func TestReadsWhatParitySays(t *testing.T) {
	const line = "    parity_test.go:139: parity Qwen3-0.6B: fed, 12 of 1024 tokens differ, transformers 42 (margin bound 0.193, rms 0.058); logits off by 0.101 at most, transformers 0.231; " +
		"generated, 700 tokens equal before the first difference, transformers 512; 9 of 16 prompts whole, 7 left after a close call\n"
	want := Parity{Model: "Qwen3-0.6B", Differ: 12, Allowed: 42, Of: 1024, Logits: 0.101, LogitBound: 0.231, MarginBound: 0.193, Equal: 700, EqualThere: 512, Whole: 9, Prompts: 16}
	if p := parityOf(line); len(p) != 1 || p[0] != want {
		t.Errorf("parity %+v, want %+v", p, want)
	}
}

func TestComparesSequencesUpToTheFirstDifference(t *testing.T) {
	alone := []generated{
		{[]int32{1, 2, 3}, []float64{1, 1, 1}},
		{[]int32{1, 2, 3}, []float64{1, 0.1, 1}},
		{[]int32{1, 2, 3}, []float64{1, 1, 0.5}},
	}
	outs := []generated{
		{[]int32{1, 2, 3}, []float64{1, 1, 1}},
		{[]int32{1, 7, 8}, []float64{1, 0.2, 1}},
		{[]int32{1, 2, 9}, []float64{1, 1, 0.4}},
	}
	b, wide := compare(alone, outs, 0.3)
	if b != (Batch{Differ: 2, Of: 3, Equal: 6, Tokens: 9, Margins: "0.100 0.400"}) || wide != 1 {
		t.Errorf("%+v, %d wide", b, wide)
	}
}

func TestPrefillIsHeldAgainstTheMatrixRate(t *testing.T) {
	s := Step{Shape: "Qwen3-8B", What: "prefill 1024", Device: 24}
	if got := ofRate(&s, 790); got < 74 || got > 76 { // 14.2 TFLOP in 24 ms are 593 TFLOP/s
		t.Errorf("%.1f %% of the rate", got)
	}
	for _, s := range []Step{{Shape: "Qwen3-8B", What: "decode 1 x 300", Device: 4}, {Shape: "Qwen3-8B", What: "prefill 64"}} {
		if got := ofRate(&s, 790); got != 0 {
			t.Errorf("%+v: %.1f %%", s, got)
		}
	}
}

func TestIntakeIsReadFromTheDump(t *testing.T) {
	var in Intake
	in.fill(`TTFTSPLIT rid=a intake=0.200 queued=1.000 prefill=2.000 decode=3.000 e2e=6.200 egress=0.100 ttft=3.300 tail=0.000 prompt=1024 cached=0 out=128 steps_waited=0 kernel=0.0 reason=length
TTFTSPLIT rid=b intake=0.900 queued=1.000 prefill=2.000 decode=3.000 e2e=6.900 egress=0.300 ttft=4.200 tail=0.000 prompt=1022 cached=0 out=128 steps_waited=0 kernel=0.0 reason=length
TTFTSPLIT rid=c intake=9.000 queued=1.000 prefill=2.000 decode=3.000 e2e=6.900 egress=9.000 ttft=4.200 tail=0.000 prompt=8 cached=0 out=1 steps_waited=0 kernel=0.0 reason=length
`)
	want := Intake{N: 2, Prompt: 1024, P50: 0.9, P99: 0.9, Max: 0.9, Egress: 0.3, Late: 0.3}
	if in != want {
		t.Errorf("got  %+v\nwant %+v", in, want)
	}
}
