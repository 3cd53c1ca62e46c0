package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"waybill/cmd/gpureport"
)

var (
	readsVariable = regexp.MustCompile(`(?:os\.Getenv|os\.LookupEnv)\("([A-Z][A-Z0-9_]+)"\)`)
	documented    = regexp.MustCompile("(?m)^\\| `([A-Z][A-Z0-9_]+)`")
)

// commands are the structs that hold each command's flags, in the page's order.
var commands = []struct{ name, holder string }{
	{"serve", "serveCmd"}, {"bench", "benchCmd"}, {"ttft", "ttftSplitCmd"}, {"ttft diff", "ttftDiffCmd"}, {"top", "topCmd"}, {"gpu-report", "gpuReportCmd"},
}

// noFlags are structs of the command line that hold none.
var noFlags = []string{"versionCmd", "ttftCmd"}

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

// flagRow is a flag's row: variable, flag, default, meaning; empty for an argument.
func flagRow(f *ast.Field) (string, error) {
	raw, err := strconv.Unquote(f.Tag.Value)
	if err != nil {
		return "", err
	}
	tag := reflect.StructTag(raw)
	if _, ok := tag.Lookup("arg"); ok {
		return "", nil
	}
	name := tag.Get("name")
	if name == "" {
		name = kebab(f.Names[0].Name)
	}
	flag := name
	if _, ok := tag.Lookup("negatable"); ok {
		flag = "[no-]" + name
	}
	value := tag.Get("default")
	if id, ok := f.Type.(*ast.Ident); ok && id.Name == "bool" && value == "" {
		value = "false"
	}
	if value != "" {
		value = "`" + value + "`"
	}
	help := strings.NewReplacer("${enum}", tag.Get("enum"), "${parts}", strings.Join(gpureport.Parts, ", ")).Replace(tag.Get("help"))
	if help == "" || strings.Contains(help, "${") {
		return "", fmt.Errorf("--%s: help %q is none, or holds a variable that this test does not know", name, help)
	}
	return fmt.Sprintf("| `WAYBILL_%s` | `--%s` | %s | %s |\n", strings.ToUpper(strings.ReplaceAll(name, "-", "_")), flag, value, strings.TrimSuffix(help, ".")), nil
}

// flagTables returns the rows of each struct with flags in cmd/waybill.
func flagTables(t *testing.T) map[string]string {
	t.Helper()
	tables := map[string]string{}
	goFiles(t, func(dir, file string, src []byte) {
		if dir != "cmd/waybill" {
			return
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, src, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok && strings.HasSuffix(spec.Name.Name, "Cmd") {
				rows := ""
				for _, f := range s.Fields.List {
					row, err := flagRow(f)
					if err != nil {
						t.Errorf("%s: %s: %v", file, spec.Name.Name, err)
					}
					rows += row
				}
				tables[spec.Name.Name] = rows
			}
			return false
		})
	})
	return tables
}

// flagSections is the page from its first command to its notes.
func flagSections(tables map[string]string) string {
	var b strings.Builder
	for _, c := range commands {
		fmt.Fprintf(&b, "## Flags of `waybill %s`\n\n| variable | flag | default | meaning |\n| --- | --- | --- | --- |\n%s\n", c.name, tables[c.holder])
	}
	return b.String()
}

// Every command has a table of its own that holds exactly its flags, with the
// defaults and the words of --help. -update writes them anew.
func TestEnvironmentPageListsEachCommandsFlags(t *testing.T) {
	tables := flagTables(t)
	for _, c := range commands {
		if strings.Count(tables[c.holder], "\n") == 0 {
			t.Errorf("no flags found in %s: it no longer matches", c.holder)
		}
	}
	for holder := range tables {
		known := slices.Contains(noFlags, holder)
		for _, c := range commands {
			known = known || c.holder == holder
		}
		if !known {
			t.Errorf("%s is in no table", holder)
		}
	}
	page, err := os.ReadFile("ENVIRONMENT.md")
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(page), "## Flags of ")
	_, notes, hasNotes := strings.Cut(rest, "\n## Notes\n")
	if !ok || !hasNotes {
		t.Fatal("ENVIRONMENT.md has no flags, or no notes behind them")
	}
	want := head + flagSections(tables) + "## Notes\n" + notes
	if *update {
		if err := os.WriteFile("ENVIRONMENT.md", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(page) == want {
		return
	}
	got, wanted := strings.Split(string(page), "\n"), strings.Split(want, "\n")
	for i := range min(len(got), len(wanted)) {
		if got[i] != wanted[i] {
			t.Fatalf("ENVIRONMENT.md differs from the flags (write it anew with -update). Line %d is\n%s\nmust be\n%s", i+1, got[i], wanted[i])
		}
	}
	t.Fatal("ENVIRONMENT.md differs from the flags in length: write it anew with -update")
}

// Above the tables of flags stands every variable that is no flag's.
func TestEnvironmentPageListsWhatIsReadBesideFlags(t *testing.T) {
	read := map[string]string{}
	goFiles(t, func(dir, file string, src []byte) {
		for _, m := range readsVariable.FindAllStringSubmatch(string(src), -1) {
			read[m[1]] = file
		}
	})
	if len(read) < 4 {
		t.Fatalf("found only %d variables in the code: the pattern no longer matches", len(read))
	}
	page, err := os.ReadFile("ENVIRONMENT.md")
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(page), "## Flags of ")
	listed := map[string]bool{}
	for _, m := range documented.FindAllStringSubmatch(head, -1) {
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
