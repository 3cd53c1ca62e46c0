package gpureport

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Markdown returns the report for people.
func (r *Report) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# GPU report\n\n%s, %s, %.0f s.\n", r.GPU, r.Date, r.Seconds)
	for _, part := range slices.Sorted(maps.Keys(r.Failed)) {
		first, _, _ := strings.Cut(r.Failed[part], "\n")
		fmt.Fprintf(&b, "\n**%s failed**: %s\n", part, first)
	}
	for _, part := range slices.Sorted(maps.Keys(r.Skipped)) {
		fmt.Fprintf(&b, "\n**%s skipped**: %s\n", part, r.Skipped[part])
	}
	if len(r.Checks) > 0 {
		var bad []string
		for _, c := range r.Checks {
			if !c.OK {
				bad = append(bad, c.Name)
			}
		}
		fmt.Fprintf(&b, "\n## Conformance\n\n%d of %d tests passed. %s\n", len(r.Checks)-len(bad), len(r.Checks), strings.Join(bad, " "))
	}
	table(&b, "Goldens", "model | fed | differ | transformers | of | margins there", r.Goldens, func(g Golden) []any {
		return []any{g.Model, g.How, g.Differ, g.Allowed, g.Of, g.Margins}
	})
	table(&b, "Parity with transformers", "model | fed: differ | transformers bf16 | of | logits off by | transformers bf16 | bound of margins | generated: equal before the first difference | transformers bf16 | prompts whole | of", r.Parity, func(p Parity) []any {
		return []any{p.Model, p.Differ, p.Allowed, p.Of, p.Logits, p.LogitBound, p.MarginBound, p.Equal, p.EqualThere, p.Whole, p.Prompts}
	})
	table(&b, "The same prompts in other company", "how | sequences that differ | of | tokens equal | of | margins there | preemptions", r.Batches, func(x Batch) []any {
		return []any{x.How, x.Differ, x.Of, x.Equal, x.Tokens, x.Margins, x.Preemptions}
	})
	table(&b, "Steps", "shape | step | device, ms | wall, ms | idle before, µs | p99 | of the matrix rate", r.Steps, func(s Step) []any {
		share := any("–")
		if s.OfRate > 0 {
			share = fmt.Sprintf("%.0f %%", s.OfRate)
		}
		return []any{s.Shape, s.What, s.Device, s.Wall, s.Idle, s.P99, share}
	})
	if r.MatrixRate > 0 {
		fmt.Fprintf(&b, "\nOne product of 8192³ in bf16: %.0f TFLOP/s.\n", r.MatrixRate)
	}
	table(&b, "Server", "shape | load | TTFT p50, ms | p99 | TPOT p50, ms | ITL p99, ms | tokens/s | failed", r.Loads, func(l Load) []any {
		return append([]any{l.Shape, l.What}, l.figures("%.2f", "median_ttft_ms", "p99_ttft_ms", "median_tpot_ms", "p99_itl_ms", "output_throughput", "failed")...)
	})
	table(&b, "Newcomers of 64 tokens", "shape | beside | idle TTFT, ms | TTFT mean, ms | p99 | streams' ITL p50, ms | p99 | step, ms | wait, steps | largest | beyond a step, ms | n", r.Probes, func(l Load) []any {
		return append([]any{l.Shape, l.What}, l.figures("%.3f", "mean_idle_ttft_ms", "mean_ttft_ms", "p99_ttft_ms", "median_stream_itl_ms", "p99_stream_itl_ms",
			"median_step_ms", "mean_ledger_wait_steps", "max_ledger_wait_steps_le", "max_ledger_beyond_step_ms", "ledger_wait_count")...)
	})
	table(&b, "Device idle between two steps of a server", "shape | streams | members | steps | p50, µs | p99, µs | mean, µs | host p50, µs | host p99, µs", r.Gaps, func(g Gap) []any {
		return []any{g.Shape, g.Streams, g.Membership, g.Steps, fmt.Sprintf("%.1f", g.P50), fmt.Sprintf("%.1f", g.P99), fmt.Sprintf("%.1f", g.Mean), fmt.Sprintf("%.1f", g.Host), fmt.Sprintf("%.1f", g.HostP99)}
	})
	table(&b, "Text prompts in open loop at 60 % of the capacity", "shape | requests/s | n | prompt tokens | intake p50, ms | p99 | largest | egress p50, ms | p99", r.Intake, func(i Intake) []any {
		return []any{i.Shape, fmt.Sprintf("%.1f", i.Rate), i.N, i.Prompt, i.P50, i.P99, i.Max, i.Egress, i.Late}
	})
	table(&b, "Weights in files", "model | MB | start to ready, ms | loaded at GB/s | page cache to memory, GB/s", r.Loading, func(l Loading) []any {
		return []any{l.Model, l.Bytes / 1e6, l.Ready, l.Load, fmt.Sprintf("%.1f", l.Cache)}
	})
	for _, l := range r.Probes {
		b.WriteString("\nBeside " + l.What + ", by the phase of the step on arrival (n, queued → scheduled in ms):")
		bins, _ := l.Result["phase_bins"].([]any)
		for i, bin := range bins {
			if m, ok := bin.(map[string]any); ok {
				fmt.Fprintf(&b, " %.1f: %v, %.2f;", float64(i)/10, m["count"], m["mean_ledger_queued_ms"])
			}
		}
		b.WriteString("\n")
	}
	for _, shape := range slices.Sorted(maps.Keys(r.Ready)) {
		fmt.Fprintf(&b, "\n%s: start to ready in %d ms.\n", shape, r.Ready[shape])
	}
	return b.String()
}

// figures formats fields of the result; a field that is not there is a dash.
func (l Load) figures(format string, names ...string) (out []any) {
	for _, n := range names {
		if v, ok := l.Result[n].(float64); ok {
			out = append(out, strings.TrimSuffix(strings.TrimSuffix(fmt.Sprintf(format, v), ".000"), ".00"))
		} else {
			out = append(out, "–")
		}
	}
	return out
}

// table writes rows under a heading, nothing if there are none.
func table[T any](b *strings.Builder, title, head string, rows []T, cells func(T) []any) {
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n| %s |\n|%s\n", title, head, strings.Repeat(" --- |", strings.Count(head, "|")+1))
	for _, r := range rows {
		b.WriteString("|")
		for _, c := range cells(r) {
			fmt.Fprintf(b, " %v |", c)
		}
		b.WriteString("\n")
	}
}
