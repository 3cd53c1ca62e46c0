package docs

import (
	"os"
	"regexp"
	"testing"
)

func TestSecurityPageListsEveryModuleWithItsVersion(t *testing.T) {
	mod, err := os.ReadFile(root + "/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (v\\S+) \\| \\d{4}-\\d\\d-\\d\\d \\|$").FindAllSubmatch(page, -1) {
		listed[string(m[1])] = string(m[2])
	}
	required := regexp.MustCompile(`(?m)^\t(\S+) (v\S+)`).FindAllSubmatch(mod, -1)
	if len(required) < 8 {
		t.Fatalf("found only %d modules in go.mod", len(required))
	}
	for _, m := range required {
		name, version := string(m[1]), string(m[2])
		if listed[name] != version {
			t.Errorf("SECURITY.md has %s %q, go.mod %s", name, listed[name], version)
		}
		delete(listed, name)
	}
	for name := range listed {
		t.Errorf("SECURITY.md lists %s, which go.mod does not require", name)
	}
}
