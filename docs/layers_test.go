// Package docs holds no code, only tests that keep the pages and the layers of
// the program true.
package docs

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// root is the repository's folder, seen from this package.
const root = ".."

// layers says which packages of this module a package may import: the arrows of
// docs/ARCHITECTURE.md. A folder stands for all below it, the longest one wins.
var layers = map[string][]string{
	"cmd/waybill":        {"httpapi", "actors", "model", "kernels", "cmd/bench", "cmd/ttft", "cmd/top", "cmd/gpureport"},
	"cmd/bench":          {"actors/waybill", "cmd/ttft/exposition", "cmd/ttft/dump"}, // clients: the ledger's names, nothing of the engine
	"cmd/ttft":           {"actors/waybill"},
	"cmd/gpureport":      {"cmd/ttft/exposition"}, // runs the other programs
	"cmd/top":            {"actors"},              // the types that the console sends
	"httpapi":            {"actors"},
	"actors":             {"actors/sched", "actors/waybill", "actors/mailbox", "model", "kernels"},
	"actors/sched":       {},
	"actors/waybill":     {},
	"actors/mailbox":     {},
	"model":              {"model", "kernels"},
	"kernels":            {"kernels"},
	"kernels/cpu":        {"kernels"},
	"kernels/kerneltest": {"kernels"},
	"docs":               {},
}

// confined says where a dependency or a construct may be used, and why.
var confined = []struct {
	what   string // import path, or its beginning with "/…"
	where  []string
	reason string
}{
	{"github.com/asynkron/protoactor-go/…", []string{"actors/mailbox"}, "a swap stays possible; no engine code sees its hazards"},
	{"github.com/valyala/fasthttp/…", []string{"httpapi", "cmd"}, "wire details stay on the wire"},
	{"github.com/fasthttp/…", []string{"httpapi", "cmd"}, "wire details stay on the wire"},
	{"C", []string{"kernels/cuda"}, "CGO_ENABLED=0 builds all else"},
	{"gorgonia.org/cu/…", []string{"kernels/cuda"}, "CGO_ENABLED=0 builds all else"},
	{"github.com/NVIDIA/go-nvml/…", []string{"kernels/cuda/telemetry"}, "needs cgo, and ends the process when misused"},
	{"github.com/tiktoken-go/…", nil, "it changes how our own patterns match, globally"},
	{"unsafe", []string{"kernels", "model/gguf", "model/safetensors", "actors/mailbox"}, "a small surface to review"},
}

// pure lists what the scheduler core must not import: same inputs, same plan.
var pure = []string{"math/rand", "math/rand/v2", "sync", "os", "crypto/rand"}

// goFiles calls f for each Go file that is not a test.
func goFiles(t *testing.T, f func(dir, file string, src []byte)) {
	t.Helper()
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && d.Name() != "..") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
			return nil
		}
		src, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		f(path.Dir(filepath.ToSlash(rel)), rel, src)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// imports returns the import paths of a file.
func imports(t *testing.T, file string, src []byte) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, src, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, i := range f.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

// within reports whether dir is folder or below it.
func within(dir, folder string) bool { return dir == folder || strings.HasPrefix(dir, folder+"/") }

// layerOf returns the longest entry of layers that holds dir.
func layerOf(dir string) (string, bool) {
	for d := dir; d != "."; d = path.Dir(d) {
		if _, ok := layers[d]; ok {
			return d, true
		}
	}
	return "", false
}

func TestPackagesImportOnlyTheLayersBelow(t *testing.T) {
	files := 0
	goFiles(t, func(dir, file string, src []byte) {
		files++
		layer, ok := layerOf(dir)
		if !ok {
			t.Errorf("%s: folder %s is in no layer of docs/layers_test.go", file, dir)
			return
		}
		for _, imp := range imports(t, file, src) {
			to, own := strings.CutPrefix(imp, "waybill/")
			if !own || within(to, layer) && layer != "actors" && layer != "kernels" {
				continue
			}
			allowed := false
			for _, a := range layers[layer] {
				allowed = allowed || within(to, a)
			}
			if !allowed {
				t.Errorf("%s imports %s: %s may import only %v", file, imp, layer, layers[layer])
			}
		}
	})
	if files < 30 {
		t.Fatalf("only %d files were looked at", files)
	}
}

func TestConfinedImportsStayWhereTheyBelong(t *testing.T) {
	goFiles(t, func(dir, file string, src []byte) {
		for _, imp := range imports(t, file, src) {
			for _, c := range confined {
				prefix, any := strings.CutSuffix(c.what, "/…")
				if imp != c.what && !(any && within(imp, prefix)) {
					continue
				}
				ok := false
				for _, w := range c.where {
					ok = ok || within(dir, w)
				}
				if !ok {
					t.Errorf("%s imports %s, which is confined to %v: %s", file, imp, c.where, c.reason)
				}
			}
		}
	})
}

func TestSchedulerCoreIsPure(t *testing.T) {
	goFiles(t, func(dir, file string, src []byte) {
		if dir != "actors/sched" {
			return
		}
		for _, imp := range imports(t, file, src) {
			for _, p := range pure {
				if imp == p {
					t.Errorf("%s imports %s: the scheduler core must be replayable", file, imp)
				}
			}
		}
		for _, bad := range []string{"time.Now(", "time.Since(", "time.After(", "\tgo ", "go func", "chan "} {
			if strings.Contains(string(src), bad) {
				t.Errorf("%s contains %q: no clock, goroutine or channel in the scheduler core", file, bad)
			}
		}
	})
}

func TestTopLevelHoldsTheAllowedFoldersOnly(t *testing.T) {
	allowed := " actors kernels httpapi model cmd docs bin "
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && !strings.Contains(allowed, " "+e.Name()+" ") {
			t.Errorf("folder %s is not one of%s", e.Name(), allowed)
		}
	}
}
