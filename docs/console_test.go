package docs

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"waybill/actors"
)

var update = flag.Bool("update", false, "write docs/CONSOLE.md anew")

// consolePage is what CONSOLE.md must be: its head, and the schema of the API from
// the types that are encoded.
func consolePage(head string) string {
	var b strings.Builder
	b.WriteString(head)
	seen := map[reflect.Type]bool{}
	var describe func(t reflect.Type, title string)
	describe = func(t reflect.Type, title string) {
		if seen[t] {
			return
		}
		seen[t] = true
		fmt.Fprintf(&b, "\n### %s\n\n| field | type | meaning |\n| --- | --- | --- |\n", title)
		var inner []reflect.Type
		for i := range t.NumField() {
			f := t.Field(i)
			if f.Anonymous {
				fmt.Fprintf(&b, "| … | %s | its fields |\n", f.Type.Name())
				inner = append(inner, f.Type)
				continue
			}
			name, doc := f.Tag.Get("json"), f.Tag.Get("doc")
			typ, elem := jsonType(f.Type)
			if elem != nil {
				inner = append(inner, elem)
				doc = "see " + elem.Name()
			}
			if doc == "" {
				panic(t.Name() + "." + f.Name + " has no doc tag")
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, typ, doc)
		}
		for _, t := range inner {
			describe(t, t.Name())
		}
	}
	b.WriteString("\n## Schema\n")
	describe(reflect.TypeFor[actors.Snapshot](), "Snapshot: `GET /console/api/snapshot`, and each event of `GET /console/api/events`")
	describe(reflect.TypeFor[actors.Waterfall](), "Waterfall: `GET /console/api/requests/{rid}`")
	describe(reflect.TypeFor[actors.Inspection](), "Inspection: `GET /console/api/actors/{name}`")
	return b.String()
}

// jsonType returns a type's name in JSON, and the struct in it, if there is one.
func jsonType(t reflect.Type) (name string, elem reflect.Type) {
	switch t.Kind() {
	case reflect.Slice:
		return "list of " + t.Elem().Name(), t.Elem()
	case reflect.Struct:
		return "object", t
	case reflect.String:
		return "string", nil
	case reflect.Bool:
		return "boolean", nil
	case reflect.Interface:
		return "any", nil
	}
	return "number", nil
}

func TestConsolePageIsWhatTheCodeSends(t *testing.T) {
	const file = "CONSOLE.md"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(b), "\n## Schema\n")
	want := consolePage(head)
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(b) != want {
		t.Errorf("%s is not what the code sends; go test ./docs -run ConsolePage -update", file)
	}
}
