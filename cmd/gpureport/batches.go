package gpureport

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Batch compares the greedy tokens of some prompts with those of the same prompts alone.
type Batch struct {
	How string `json:"how"`
	// Differ of Of sequences differ somewhere; Equal of Tokens come before that.
	Differ int `json:"differ"`
	Of     int `json:"of"`
	Equal  int `json:"equal"`
	Tokens int `json:"tokens"`
	// Margins are the distances of the best two logits at the first differences.
	Margins     string `json:"margins"`
	Preemptions int    `json:"preemptions"`
}

// saved is what batches needs of parity.json.
type saved struct {
	MarginWorst float64 `json:"bfloat16_margin_worst"`
	Prompts     []struct {
		IDs []int32 `json:"ids"`
	} `json:"prompts"`
}

// generated is one prompt's outcome: ids, and the distance of the best two at each.
type generated struct {
	ids     []int32
	margins []float64
}

// batchRuns are the ways in which the prompts are computed. Each server runs the prompts
// rounds times; the last counts.
var batchRuns = []struct {
	how    string
	flags  []string
	rounds int
	atOnce bool
}{
	{"alone", nil, 1, false},
	{"alone again", nil, 1, false},
	{"all at once", nil, 1, true},
	{"all at once, in chunks of 64 tokens at most", []string{"--max-num-batched-tokens", "64", "--max-num-seqs", "32"}, 1, true},
	{"all at once, KV memory for half of it", []string{"--kv-cache-memory-bytes", "200MiB", "--max-model-len", "1024"}, 1, true},
	{"all at once, prefix cache, second time", []string{"--enable-prefix-caching"}, 2, true},
}

// batches runs the prompts of the saved model in different company. Every first
// difference must be a close call: below what bfloat16 does to margins in transformers.
func batches(ctx context.Context, o *Options, r *Report) error {
	const shape = "Qwen3-0.6B"
	folder := filepath.Join(o.parityFolder(), shape)
	data, err := os.ReadFile(filepath.Join(folder, "parity.json"))
	if errors.Is(err, os.ErrNotExist) {
		r.Skipped["batches"] = "no model of part parity"
		return nil
	}
	if err != nil {
		return err
	}
	var s saved
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	var alone []generated
	var faults []error
	for _, run := range batchRuns {
		outs, preemptions, err := o.company(ctx, folder, run.flags, run.rounds, run.atOnce, &s)
		if err != nil {
			return fmt.Errorf("%s: %w", run.how, err)
		}
		if alone == nil {
			alone = outs
			continue
		}
		b, wide := compare(alone, outs, s.MarginWorst)
		b.How, b.Preemptions = run.how, preemptions
		r.Batches = append(r.Batches, b)
		if wide > 0 {
			faults = append(faults, fmt.Errorf("%s: %d sequences differ where the best two logits are more than %.3f apart", run.how, wide, s.MarginWorst))
		}
		if strings.Contains(run.how, "KV memory") && preemptions == 0 {
			faults = append(faults, fmt.Errorf("%s: nothing was preempted", run.how))
		}
	}
	return errors.Join(faults...)
}

// compare counts where outs leave alone, and the differences that are no close call.
func compare(alone, outs []generated, bound float64) (b Batch, wide int) {
	var margins []string
	for i := range alone {
		k := 0
		for k < len(alone[i].ids) && k < len(outs[i].ids) && alone[i].ids[k] == outs[i].ids[k] {
			k++
		}
		b.Of++
		b.Equal += k
		b.Tokens += len(alone[i].ids)
		if k == len(alone[i].ids) {
			continue
		}
		b.Differ++
		margin := alone[i].margins[k]
		if k < len(outs[i].margins) {
			margin = min(margin, outs[i].margins[k])
		}
		margins = append(margins, fmt.Sprintf("%.3f", margin))
		if margin > bound {
			wide++
		}
	}
	slices.Sort(margins)
	b.Margins = strings.Join(margins, " ")
	return b, wide
}

// company serves the model with flags and returns each prompt's outcome.
func (o *Options) company(ctx context.Context, folder string, flags []string, rounds int, atOnce bool, s *saved) ([]generated, int, error) {
	if !slices.Contains(flags, "--enable-prefix-caching") {
		flags = append(slices.Clone(flags), "--no-enable-prefix-caching")
	}
	server, _, err := o.serveFolder(ctx, folder, append(flags, "--load-format", "auto")...)
	if err != nil {
		return nil, 0, err
	}
	defer server.stop()
	outs := make([]generated, len(s.Prompts))
	fails := make([]error, len(s.Prompts))
	for range rounds {
		var wg sync.WaitGroup
		for i := range s.Prompts {
			one := func() { outs[i], fails[i] = server.complete(ctx, s.Prompts[i].IDs) }
			if atOnce {
				wg.Go(one)
			} else {
				one()
			}
		}
		wg.Wait()
		if err := errors.Join(fails...); err != nil {
			return nil, 0, err
		}
	}
	n, err := server.preemptions(ctx)
	return outs, n, err
}

// complete asks for 64 greedy tokens with the two best log-probabilities of each.
func (s *server) complete(ctx context.Context, ids []int32) (g generated, err error) {
	body, err := json.Marshal(map[string]any{
		"prompt": ids, "max_tokens": 64, "temperature": 0, "ignore_eos": true, "logprobs": 2, "return_token_ids": true,
	})
	if err != nil {
		return g, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return g, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return g, err
	}
	defer resp.Body.Close()
	var answer struct {
		Error   json.RawMessage `json:"error"`
		Choices []struct {
			TokenIDs []int32 `json:"token_ids"`
			Logprobs struct {
				Top []map[string]float64 `json:"top_logprobs"`
			} `json:"logprobs"`
		} `json:"choices"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return g, err
	}
	if resp.StatusCode != http.StatusOK || len(answer.Choices) != 1 || len(answer.Choices[0].TokenIDs) == 0 {
		return g, fmt.Errorf("status %d: %s", resp.StatusCode, answer.Error)
	}
	g.ids = answer.Choices[0].TokenIDs
	for _, top := range answer.Choices[0].Logprobs.Top {
		var values []float64
		for _, v := range top {
			values = append(values, v)
		}
		slices.Sort(values)
		margin := 0.0
		if n := len(values); n >= 2 {
			margin = values[n-1] - values[n-2]
		}
		g.margins = append(g.margins, margin)
	}
	if len(g.margins) != len(g.ids) {
		return g, fmt.Errorf("%d tokens with %d sets of log-probabilities", len(g.ids), len(g.margins))
	}
	return g, nil
}

// preemptions reads the server's counter.
func (s *server) preemptions(ctx context.Context) (n int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), " "); ok && strings.HasPrefix(name, "vllm:num_preemptions_total") {
			return int(decimal(value)), nil
		}
	}
	return 0, errors.Join(fmt.Errorf("no vllm:num_preemptions_total in /metrics"), lines.Err())
}
