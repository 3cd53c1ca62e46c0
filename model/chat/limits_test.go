package chat

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Templates that would not end, or eat memory, each end with an error that says
// which limit it was, in little time and memory. {{ messages|length }} switches on
// what Compile's trial run does not see.
func TestHostileTemplatesEnd(t *testing.T) {
	three := json.RawMessage(`[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]`)
	for _, c := range []struct{ name, source, want string }{
		{"nested loops", `{% set l = range(3000)|list %}{% if messages|length > 2 %}{% for a in l %}{% for b in l %}{% for c in l %}{% endfor %}{% endfor %}{% endfor %}{% endif %}`, "steps"},
		{"endless recursion", `{% macro m(x) %}{{ m(x) }}{% endmacro %}{% if messages|length > 2 %}{{ m(1) }}{% endif %}`, "nested more than"},
		{"doubling by set", `{% set ns = namespace(s="aaaaaaaa") %}{% if messages|length > 2 %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{% endif %}`, "a value of more than"},
		{"doubling without a loop", `{% set s = "aaaaaaaa" %}{% if messages|length > 2 %}` + strings.Repeat(`{% set s = s ~ s %}`, 40) + `{% endif %}`, "a value of more than"},
		{"lists of lists", `{% set ns = namespace(l=["aaaaaaaa"]) %}{% if messages|length > 2 %}{% for i in range(40) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l|tojson }}{% endif %}`, "a value of more than"},
		{"much output", `{% set s = "a" * 1000000 %}{% if messages|length > 2 %}{% for i in range(60000) %}{{ s }}{% endfor %}{% endif %}`, "bytes of output"},
		{"much text", `{% if messages|length > 2 %}{% for i in range(60000) %}` + strings.Repeat("text ", 2000) + `{% endfor %}{% endif %}`, "own text"},
		{"text in macros", `{% macro m() %}` + strings.Repeat("text ", 20000) + `{% endmacro %}{% if messages|length > 2 %}{% for i in range(60000) %}{{ m() }}{% endfor %}{% endif %}`, "bytes of output"},
		{"a long range", `{% if messages|length > 2 %}{% for i in range(1000000000) %}{% endfor %}{% endif %}`, "range"},
		{"a tuple", `{% if messages|length > 2 %}{% set a, b = "x", "y" %}` + strings.Repeat(`{% set a, b = a ~ a, b ~ a %}`, 60) + `{% endif %}`, "a value of more than"},
	} {
		tmpl, err := Compile(c.source, "", "", nil)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		began := time.Now()
		_, _, err = tmpl.Render(three, Options{})
		took := time.Since(began)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one that says %q", c.name, err, c.want)
		}
		if took > 5*time.Second {
			t.Errorf("%s: it took %v", c.name, took)
		}
		if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 512<<20 {
			t.Errorf("%s: the heap grew by %d MB", c.name, grown>>20)
		}
		t.Logf("%-24s %8.1f ms, %4d MB allocated: %v", c.name, took.Seconds()*1e3, (after.TotalAlloc-before.TotalAlloc)>>20, err)
	}
}

func TestTemplatesWithoutBoundsAreRefused(t *testing.T) {
	for _, c := range []struct{ source, want string }{
		{`{{ "a".replace("a", messages[0].content) }}`, "no literal"},
		{`{{ messages[0].content|replace("", messages[0].content) }}`, "no literal"},
		{`{{ m` + strings.Repeat(`|replace("a", "aaaa")`, 5) + ` }}`, "times as large"},
		{`{{ (["x"] * 9)|join("") }}`, "no bound"},
		{`{{ messages|map("replace", "a", "b") }}`, "no bound"},
		{`{{ "{}".format(messages) }}`, "no bound"},
		{`{{ messages|tojson(indent=99999) }}`, "no bound"},
		{`{{ "a" * 9 * 9 * 9 }}`, "times as large"},
		{`{{ s` + strings.Repeat(" ~ s", 300) + ` }}`, "times as large"},
		{`{% for a in messages recursive %}{% endfor %}`, "recursive"},
		{`{% macro waybill_step() %}{% endmacro %}`, "begins with"},
		{`{{ ` + strings.Repeat("(", 100) + strings.Repeat(")", 100) + ` }}`, "nested"},
		{strings.Repeat("a", maxSource+1), "limit"},
		{`{% raw %}`, "endraw"},
		{`{{ a`, "not closed"},
	} {
		if _, err := Compile(c.source, "", "", nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: %v, want an error that says %q", c.source, err, c.want)
		}
	}
}

func TestCountingChangesNoWhitespace(t *testing.T) {
	messages := json.RawMessage(`[{"role":"user","content":" a "},{"role":"x","content":"b"}]`)
	for _, source := range []string{
		"{% for m in messages %}\n  {{ m.role }}\n{% endfor %}\n.",
		"{% for m in messages -%}\n  {{- m.role -}}\n{%- endfor %}\n.",
		" {%- for m in messages %}  x {%- if m.role == 'x' %} y {% endif -%}  {% endfor -%} .",
		"{% macro f(a) %}\n [{{ a }}] \n{%- endmacro %}\n{{ f('}}') }} {{ f(\"%}\") }}",
		"{%- macro f(a) -%}\n [{{ a }}] \n{% endmacro -%}\n{{ f({'a': {'b': 1}}) }}",
		"{% set a = messages[0].content %}\n{{ a }}{% set b, c = 1, 'x,y' %}{{ b }}{{ c }}\n{% set d %} block {% endset %}{{ d }}",
		"{% raw %}{{ for }}{% if %}{% endraw %}{# {% for %} #}{{ nothing }}|{{ none }}|{{ true }}|{{ [1,'a'] }}|{{ 1 if false }}",
	} {
		counted, err := instrument(prepare(source))
		if err != nil {
			t.Fatal(err)
		}
		plain, err := compile(prepare(source))
		if err != nil {
			t.Fatal(err)
		}
		with, err := compile(counted)
		if err != nil {
			t.Fatalf("%q: %v", counted, err)
		}
		tmpl := &Template{}
		var g *guard
		if g, err = newGuard(source, "", "", nil); err != nil {
			t.Fatal(err)
		}
		tmpl.guard = g
		var got [2]string
		for i, c := range []*Template{{plain: plain, rewritten: plain, guard: g}, {plain: with, rewritten: with, guard: g}} {
			if got[i], _, err = c.Render(messages, Options{}); err != nil {
				t.Fatalf("%q: %v", source, err)
			}
		}
		if got[0] != got[1] {
			t.Errorf("%q\n got %q\nwant %q\nfrom %q", source, got[1], got[0], counted)
		}
	}
}

func TestARenderingEndsWithItsClient(t *testing.T) {
	tmpl, err := Compile(`{% set l = range(400)|list %}{% for a in l %}{% for b in l %}{{ loop.index }}{% endfor %}{% endfor %}`, "", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	_, _, err = tmpl.Render(json.RawMessage(`[{"role":"user","content":"a"}]`), Options{Cancelled: func() bool { calls++; return calls > 3 }})
	if err == nil || calls != 4 {
		t.Errorf("error %v after %d questions", err, calls)
	}
}
