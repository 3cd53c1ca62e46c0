package gpureport

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// Parity compares a model that transformers saved with transformers in float32. Bounds
// and what is allowed are what transformers in bfloat16 is off by.
type Parity struct {
	Model string `json:"model"`
	// Differ of Of fed tokens are not the best.
	Differ  int `json:"differ"`
	Allowed int `json:"allowed"`
	Of      int `json:"of"`
	// Logits is the largest error of a logit.
	Logits     float64 `json:"logits_off"`
	LogitBound float64 `json:"logits_bound"`
	// MarginBound is the distance of the best two logits below which a call is close.
	MarginBound float64 `json:"margin_bound"`
	// Equal counts generated tokens before each prompt's first difference.
	Equal      int `json:"equal"`
	EqualThere int `json:"equal_transformers"`
	Whole      int `json:"whole"`
	Prompts    int `json:"prompts"`
}

// parityFolder is where the saved models lie.
func (o *Options) parityFolder() string { return filepath.Join(o.Dir, "parity") }

// parity saves models with transformers, if the machine has it, and compares.
func parity(ctx context.Context, o *Options, r *Report) error {
	if err := exec.CommandContext(ctx, "python3", "-c", "import torch, transformers").Run(); err != nil {
		r.Skipped["parity"] = "no python3 with torch and transformers"
		return nil
	}
	folder, err := filepath.Abs(o.parityFolder())
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(folder, "Qwen3-0.6B", "parity.json")); err != nil {
		c := exec.CommandContext(ctx, "python3", "parity.py", filepath.Join("model", "testdata", "tiny", "qwen3"), folder)
		c.Dir = o.Folder
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("parity.py: %w: %s", err, out)
		}
	}
	out, err := o.test(ctx, "model.test", "model", "TestParity", "-parity", folder)
	r.Parity = parityOf(out)
	return err
}

var parityLine = regexp.MustCompile(`parity (\S+): fed, (\d+) of (\d+) tokens differ, transformers (\d+) \(margin bound ([\d.]+), .*?logits off by ([\d.]+) at most, transformers ([\d.]+); ` +
	`generated, (\d+) tokens equal before the first difference, transformers (\d+); (\d+) of (\d+) prompts whole`)

func parityOf(out string) (p []Parity) {
	for _, m := range parityLine.FindAllStringSubmatch(out, -1) {
		p = append(p, Parity{
			Model: m[1], Differ: whole(m[2]), Of: whole(m[3]), Allowed: whole(m[4]), MarginBound: decimal(m[5]), Logits: decimal(m[6]),
			LogitBound: decimal(m[7]), Equal: whole(m[8]), EqualThere: whole(m[9]), Whole: whole(m[10]), Prompts: whole(m[11]),
		})
	}
	return p
}
