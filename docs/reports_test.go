package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestUserReportsNameTestsThatExist(t *testing.T) {
	page, err := os.ReadFile("USER-REPORTS.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range function.FindAllSubmatch(b, -1) {
			tests[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, l := range strings.Split(string(page), "\n") {
		if !regexp.MustCompile(`^\| \d`).MatchString(l) {
			continue
		}
		rows++
		named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(l, -1)
		if len(named) == 0 && !strings.Contains(l, "| open:") && !strings.Contains(l, "| not applicable:") {
			t.Errorf("neither a test nor a reason: %s", l)
		}
		for _, m := range named {
			if !tests[m[1]] {
				t.Errorf("there is no %s: %s", m[1], l)
			}
		}
	}
	if rows != 112 {
		t.Errorf("%d reports, want 112", rows)
	}
}
