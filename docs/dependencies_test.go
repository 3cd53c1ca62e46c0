package docs

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestDependenciesPageListsEveryDirectModule(t *testing.T) {
	mod, err := os.ReadFile(root + "/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("DEPENDENCIES.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllSubmatch(page, -1) {
		listed[string(m[1])] = true
	}
	direct := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllSubmatch(mod, -1) {
		direct[string(m[1])] = true
	}
	for m := range direct {
		if strings.HasPrefix(m, "go.opentelemetry.io/otel") {
			delete(direct, m) // one line for its four modules
			direct["go.opentelemetry.io/otel"] = true
		}
	}
	if len(direct) < 8 {
		t.Fatalf("found only %d direct modules in go.mod", len(direct))
	}
	for m := range direct {
		if !listed[m] {
			t.Errorf("DEPENDENCIES.md lacks %s", m)
		}
	}
	for m := range listed {
		if !direct[m] {
			t.Errorf("DEPENDENCIES.md lists %s, which go.mod does not require directly", m)
		}
	}
}
