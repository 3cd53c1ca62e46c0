package docs

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestDashboardQueriesNameExistingMetrics(t *testing.T) {
	b, err := os.ReadFile("grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z:_0-9]+)` \\| ([a-z]+)").FindAllStringSubmatch(string(page), -1) {
		kinds[m[1]] = m[2]
	}
	name := regexp.MustCompile(`(?:vllm|waybill):[a-z_0-9]+`)
	queries := 0
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			queries++
			for _, n := range name.FindAllString(q.Expr, -1) {
				base := n
				for _, s := range []string{"_bucket", "_sum", "_count"} {
					if b, ok := strings.CutSuffix(n, s); ok && kinds[b] == "histogram" {
						base = b
					}
				}
				if kinds[base] == "" {
					t.Errorf("panel %q asks for %s, which docs/METRICS.md does not list", p.Title, n)
				}
			}
		}
	}
	if queries < 15 {
		t.Errorf("only %d queries", queries)
	}
}
