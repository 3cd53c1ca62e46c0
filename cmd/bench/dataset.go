package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
)

// Dataset says where the prompts come from. Lengths are in tokens.
type Dataset struct {
	Name string // random, sharegpt, custom or prefix_repetition
	Path string // of sharegpt and custom

	InputLen, OutputLen int     // random
	PrefixLen           int     // random: tokens that all prompts share, before InputLen
	RangeRatio          float64 // random: lengths are uniform in len·(1 ± ratio)

	CustomOutputLen   int // custom; -1: output_tokens of each line
	ShareGPTOutputLen int // sharegpt; 0: as long as the recorded answer

	RepeatedPrefixLen, RepeatedSuffixLen, NumPrefixes, RepetitionOutputLen int // prefix_repetition

	DisableShuffle bool
}

// check returns the first option that makes no sense.
func (d *Dataset) check() error {
	bad := func(format string, args ...any) error { return fmt.Errorf("bench: "+format, args...) }
	switch d.Name {
	case "random":
		if d.InputLen < 1 || d.OutputLen < 1 || d.PrefixLen < 0 {
			return bad("random lengths %d + %d in, %d out: must be positive", d.PrefixLen, d.InputLen, d.OutputLen)
		}
		if !(d.RangeRatio >= 0 && d.RangeRatio < 1) {
			return bad("--random-range-ratio %g: must be in [0, 1)", d.RangeRatio)
		}
	case "sharegpt", "custom":
		if d.Path == "" {
			return bad("--dataset-name %s needs --dataset-path", d.Name)
		}
	case "prefix_repetition":
		if d.RepeatedPrefixLen < 1 || d.RepeatedSuffixLen < 1 || d.NumPrefixes < 1 || d.RepetitionOutputLen < 1 {
			return bad("prefix repetition of %d prefixes, %d + %d in, %d out: must be positive",
				d.NumPrefixes, d.RepeatedPrefixLen, d.RepeatedSuffixLen, d.RepetitionOutputLen)
		}
	default:
		return bad("--dataset-name %q: must be random, sharegpt, custom or prefix_repetition", d.Name)
	}
	return nil
}

// synthetic reports whether the texts are made up, so that answers may run past
// their natural end.
func (d *Dataset) synthetic() bool { return d.Name == "random" }

// load returns n prompts. The same seed gives the same ones.
func (d *Dataset) load(ctx context.Context, w *writer, n int, seed uint64) ([]prompt, error) {
	rng := rand.New(rand.NewPCG(seed, 0xda7a))
	switch d.Name {
	case "sharegpt":
		return d.shareGPT(ctx, w, rng, n)
	case "custom":
		return d.custom(ctx, w, rng, n)
	case "prefix_repetition":
		return d.prefixRepetition(ctx, w, rng, n)
	}
	return d.random(ctx, w, rng, n)
}

// spread draws a length uniformly from n·(1 ± ratio), at least 1.
func spread(rng *rand.Rand, n int, ratio float64) int {
	low := max(int(math.Floor(float64(n)*(1-ratio))), 1)
	high := int(math.Ceil(float64(n) * (1 + ratio)))
	return low + rng.IntN(max(high-low, 0)+1)
}

func (d *Dataset) random(ctx context.Context, w *writer, rng *rand.Rand, n int) ([]prompt, error) {
	var prefix string
	if d.PrefixLen > 0 {
		var err error
		if prefix, err = w.text(ctx, rng, d.PrefixLen); err != nil {
			return nil, err
		}
	}
	out := make([]prompt, n)
	for i := range out {
		in := d.PrefixLen + spread(rng, d.InputLen, d.RangeRatio)
		text, err := w.extend(ctx, rng, prefix, in)
		if err != nil {
			return nil, err
		}
		out[i] = prompt{text: text, input: in, output: spread(rng, d.OutputLen, d.RangeRatio)}
	}
	return out, nil
}

func (d *Dataset) prefixRepetition(ctx context.Context, w *writer, rng *rand.Rand, n int) ([]prompt, error) {
	if n < d.NumPrefixes {
		return nil, fmt.Errorf("bench: %d prompts for %d prefixes: must be at least one each", n, d.NumPrefixes)
	}
	var out []prompt
	in := d.RepeatedPrefixLen + d.RepeatedSuffixLen
	for range d.NumPrefixes {
		prefix, err := w.text(ctx, rng, d.RepeatedPrefixLen)
		if err != nil {
			return nil, err
		}
		for range n / d.NumPrefixes {
			text, err := w.extend(ctx, rng, prefix, in)
			if err != nil {
				return nil, err
			}
			out = append(out, prompt{text: text, input: in, output: d.RepetitionOutputLen})
		}
	}
	if !d.DisableShuffle {
		rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	}
	return out, nil
}

// shareGPT reads a list of conversations and takes the first question of each,
// with the length of the recorded answer. Very short and very long ones are left
// out, with the limits that vLLM's client has.
func (d *Dataset) shareGPT(ctx context.Context, w *writer, rng *rand.Rand, n int) ([]prompt, error) {
	const shortest, longestPrompt, longest = 4, 1024, 2048
	raw, err := os.ReadFile(d.Path)
	if err != nil {
		return nil, fmt.Errorf("bench: sharegpt: %w", err)
	}
	var talks []struct {
		Conversations []struct {
			Value string `json:"value"`
		} `json:"conversations"`
	}
	if err := json.Unmarshal(raw, &talks); err != nil {
		return nil, fmt.Errorf("bench: sharegpt: %s: %w", d.Path, err)
	}
	if !d.DisableShuffle {
		rng.Shuffle(len(talks), func(i, j int) { talks[i], talks[j] = talks[j], talks[i] })
	}
	var out []prompt
	for _, t := range talks {
		if len(out) == n {
			break
		}
		if len(t.Conversations) < 2 {
			continue
		}
		p := prompt{text: t.Conversations[0].Value, output: d.ShareGPTOutputLen}
		if p.input, err = w.tokens(ctx, p.text); err != nil {
			return nil, err
		}
		if p.output == 0 {
			if p.output, err = w.tokens(ctx, t.Conversations[1].Value); err != nil {
				return nil, err
			}
			if p.output < shortest {
				continue
			}
		}
		if p.input >= shortest && p.input <= longestPrompt && p.input+p.output <= longest {
			out = append(out, p)
		}
	}
	return repeat(out, n, d.Path)
}

// custom reads lines of {"prompt": …, "output_tokens": …}.
func (d *Dataset) custom(ctx context.Context, w *writer, rng *rand.Rand, n int) ([]prompt, error) {
	f, err := os.Open(d.Path)
	if err != nil {
		return nil, fmt.Errorf("bench: custom: %w", err)
	}
	defer f.Close()
	var out []prompt
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, maxBody)
	for line := 1; sc.Scan(); line++ {
		if strings.TrimSpace(sc.Text()) == "" {
			continue
		}
		var l struct {
			Prompt       *string `json:"prompt"`
			OutputTokens int     `json:"output_tokens"`
		}
		if err := json.Unmarshal(sc.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("bench: custom: %s:%d: %w", d.Path, line, err)
		}
		if l.Prompt == nil {
			return nil, fmt.Errorf(`bench: custom: %s:%d has no "prompt"`, d.Path, line)
		}
		p := prompt{text: *l.Prompt, output: d.CustomOutputLen}
		if p.output < 0 {
			if p.output = l.OutputTokens; p.output < 1 {
				return nil, fmt.Errorf(`bench: custom: %s:%d has no "output_tokens", which --custom-output-len -1 needs`, d.Path, line)
			}
		}
		out = append(out, p)
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("bench: custom: %s: %w", d.Path, err)
	}
	if !d.DisableShuffle {
		rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	}
	out = out[:min(n, len(out))]
	for i := range out {
		if out[i].input, err = w.tokens(ctx, out[i].text); err != nil {
			return nil, err
		}
	}
	return repeat(out, n, d.Path)
}

// repeat fills up to n prompts from the start again.
func repeat(out []prompt, n int, path string) ([]prompt, error) {
	if len(out) == 0 {
		return nil, fmt.Errorf("bench: %s holds no usable prompt", path)
	}
	for i := 0; len(out) < n; i++ {
		out = append(out, out[i])
	}
	return out, nil
}
