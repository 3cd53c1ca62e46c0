package docs

import (
	"os"
	"regexp"
	"sort"
	"strings"
	"testing"
)

var (
	readsVariable = regexp.MustCompile(`(?:os\.Getenv|os\.LookupEnv)\("([A-Z][A-Z0-9_]+)"\)`)
	flagField     = regexp.MustCompile("(?m)^\\t([A-Z][A-Za-z0-9]*) +[^`\\n]+`([^`]*help:[^`]*)`")
	flagName      = regexp.MustCompile(`name:"([^"]+)"`)
	documented    = regexp.MustCompile("(?m)^\\| `([A-Z][A-Z0-9_]+)`")
)

// kebab turns a Go field name into a flag name as kong does.
func kebab(s string) string {
	var b strings.Builder
	for i, r := range s {
		upper := r >= 'A' && r <= 'Z'
		if upper && i > 0 {
			prev := s[i-1]
			nextLower := i+1 < len(s) && s[i+1] >= 'a' && s[i+1] <= 'z'
			if prev >= 'a' && prev <= 'z' || prev >= '0' && prev <= '9' || nextLower {
				b.WriteByte('-')
			}
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}

func TestEnvironmentPageListsExactlyWhatTheCodeReads(t *testing.T) {
	read := map[string]string{}
	goFiles(t, func(dir, file string, src []byte) {
		for _, m := range readsVariable.FindAllStringSubmatch(string(src), -1) {
			read[m[1]] = file
		}
		if dir != "cmd/waybill" {
			return
		}
		for _, m := range flagField.FindAllStringSubmatch(string(src), -1) {
			if strings.Contains(m[2], "arg:") || strings.Contains(m[2], "cmd:") {
				continue
			}
			name := kebab(m[1])
			if n := flagName.FindStringSubmatch(m[2]); n != nil {
				name = n[1]
			}
			read["WAYBILL_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))] = file
		}
	})
	if len(read) < 20 {
		t.Fatalf("found only %d variables in the code: the patterns no longer match", len(read))
	}
	page, err := os.ReadFile("ENVIRONMENT.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, m := range documented.FindAllStringSubmatch(string(page), -1) {
		listed[m[1]] = true
	}
	var missing, dead []string
	for v, file := range read {
		if !listed[v] {
			missing = append(missing, v+" ("+file+")")
		}
	}
	for v := range listed {
		if read[v] == "" {
			dead = append(dead, v)
		}
	}
	sort.Strings(missing)
	sort.Strings(dead)
	if len(missing) > 0 {
		t.Errorf("ENVIRONMENT.md lacks: %s", strings.Join(missing, ", "))
	}
	if len(dead) > 0 {
		t.Errorf("ENVIRONMENT.md lists what no code reads: %s", strings.Join(dead, ", "))
	}
}
