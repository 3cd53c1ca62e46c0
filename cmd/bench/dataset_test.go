package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// prompts loads a dataset from a fake server.
func prompts(t *testing.T, f *fake, d Dataset, n int) []prompt {
	t.Helper()
	o := f.options()
	o.Dataset, o.Model = d, "fake"
	if err := d.check(); err != nil {
		t.Fatal(err)
	}
	c, err := newClient(f.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	w, err := newWriter(t.Context(), &o, c)
	if err != nil {
		t.Fatal(err)
	}
	out, err := d.load(t.Context(), w, n, 5)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func counting(t *testing.T) *fake {
	f := newFake(t, quick)
	f.tokenize = true
	return f
}

func TestRandomPromptsHaveTheLengthsAskedFor(t *testing.T) {
	d := Dataset{Name: "random", InputLen: 100, OutputLen: 20, PrefixLen: 10, RangeRatio: 0.5}
	a, b := prompts(t, counting(t), d, 50), prompts(t, counting(t), d, 50)
	prefix := strings.Join(strings.Fields(a[0].text)[:10], " ")
	differ := false
	for i, p := range a {
		if p.text != b[i].text || p.output != b[i].output {
			t.Fatal("two loads with one seed differ")
		}
		if n := len(strings.Fields(p.text)); n != p.input || n < 60 || n > 160 {
			t.Errorf("prompt %d has %d tokens, says %d, want 60 to 160", i, n, p.input)
		}
		if p.output < 10 || p.output > 30 {
			t.Errorf("prompt %d asks for %d tokens, want 10 to 30", i, p.output)
		}
		if !strings.HasPrefix(p.text, prefix+" ") {
			t.Errorf("prompt %d lacks the prefix", i)
		}
		differ = differ || p.text != a[0].text
	}
	if !differ {
		t.Error("all prompts are the same")
	}
}

func TestWithoutTokenizerPromptsAreSizedByUsage(t *testing.T) {
	// A token costs half a word here, and the server adds 3.
	f := newFake(t, func(w *stream, _ int, body map[string]any) {
		w.begin()
		w.text("x")
		w.end(3+2*promptWords(body), 1)
	})
	for _, p := range prompts(t, f, Dataset{Name: "random", InputLen: 103, OutputLen: 5}, 5) {
		if n := len(strings.Fields(p.text)); n != 50 {
			t.Errorf("%d words, want 50", n)
		}
	}
}

func TestPrefixRepetition(t *testing.T) {
	d := Dataset{Name: "prefix_repetition", RepeatedPrefixLen: 20, RepeatedSuffixLen: 5, NumPrefixes: 4, RepetitionOutputLen: 7}
	seen := map[string]int{}
	for _, p := range prompts(t, counting(t), d, 12) {
		f := strings.Fields(p.text)
		if len(f) != 25 || p.output != 7 {
			t.Errorf("%d tokens, output %d; want 25, 7", len(f), p.output)
		}
		seen[strings.Join(f[:20], " ")]++
	}
	if len(seen) != 4 {
		t.Errorf("%d prefixes, want 4", len(seen))
	}
	for _, n := range seen {
		if n != 3 {
			t.Errorf("a prefix has %d prompts, want 3", n)
		}
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestShareGPTTakesFirstTurnsAndLeavesOutExtremes(t *testing.T) {
	long := strings.Repeat("w ", 1500)
	file := write(t, `[
		{"conversations":[{"from":"human","value":"one two three four five"},{"from":"gpt","value":"a b c d"}]},
		{"conversations":[{"from":"human","value":"too short"},{"from":"gpt","value":"a b c d"}]},
		{"conversations":[{"from":"human","value":"`+long+`"},{"from":"gpt","value":"a b c d"}]},
		{"conversations":[{"from":"human","value":"answer is too short here"},{"from":"gpt","value":"a"}]},
		{"conversations":[{"from":"human","value":"no answer at all here"}]}]`)
	got := prompts(t, counting(t), Dataset{Name: "sharegpt", Path: file}, 3)
	if len(got) != 3 {
		t.Fatalf("%d prompts, want 3: repeated", len(got))
	}
	for _, p := range got {
		if p.text != "one two three four five" || p.input != 5 || p.output != 4 {
			t.Errorf("prompt %+v", p)
		}
	}
}

func TestCustomLines(t *testing.T) {
	file := write(t, "{\"prompt\":\"a b\",\"output_tokens\":3}\n\n{\"prompt\":\"c\",\"output_tokens\":9}\n")
	got := prompts(t, counting(t), Dataset{Name: "custom", Path: file, CustomOutputLen: -1, DisableShuffle: true}, 3)
	want := []prompt{{"a b", 2, 3}, {"c", 1, 9}, {"a b", 2, 3}}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("prompt %d is %+v, want %+v", i, got[i], want[i])
		}
	}
	if got := prompts(t, counting(t), Dataset{Name: "custom", Path: file, CustomOutputLen: 4}, 2); got[0].output != 4 {
		t.Errorf("output %d, want 4", got[0].output)
	}
}

func TestPayloadsAreThoseOfTheOriginal(t *testing.T) {
	zero, one := 0.0, 1
	o := Options{Backend: "openai", Model: "m", Temperature: &zero, IgnoreEOS: true, ExtraBody: map[string]any{"seed": 4}}
	chat := o
	chat.Backend, chat.Logprobs = "openai-chat", &one
	for _, c := range []struct {
		o    Options
		want string
	}{
		{o, `{"ignore_eos":true,"logprobs":null,"max_tokens":9,"model":"m","prompt":"hi","repetition_penalty":1,"seed":4,` +
			`"stream":true,"stream_options":{"include_usage":true},"temperature":0}`},
		{chat, `{"ignore_eos":true,"logprobs":true,"max_completion_tokens":9,"messages":[{"content":[{"text":"hi","type":"text"}],"role":"user"}],` +
			`"model":"m","seed":4,"stream":true,"stream_options":{"include_usage":true},"temperature":0,"top_logprobs":1}`},
	} {
		b, err := c.o.payload(prompt{text: "hi", output: 9})
		if err != nil {
			t.Fatal(err)
		}
		if string(b) != c.want {
			t.Errorf("got  %s\nwant %s", b, c.want)
		}
	}
}
