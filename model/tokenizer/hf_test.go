package tokenizer

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// hfVariant is a tiny tokenizer with some components replaced, and what Hugging Face tokenizers makes of strings.
type hfVariant struct {
	Name, Base string
	Override   map[string]json.RawMessage
	Added      []json.RawMessage
	Strings    []struct {
		Text, Decoded string
		IDs           []int32
	}
}

// file returns the variant's tokenizer.json.
func (v *hfVariant) file(t testing.TB) []byte {
	t.Helper()
	var f map[string]json.RawMessage
	readJSON(t, "tiny/"+v.Base+"/tokenizer.json", &f)
	override := maps.Clone(v.Override)
	if patch, ok := override["model"]; ok {
		var model map[string]json.RawMessage
		mustJSON(t, f["model"], &model)
		mustJSON(t, patch, &model)
		f["model"] = toJSON(t, model)
		delete(override, "model")
	}
	maps.Copy(f, override)
	var added []json.RawMessage
	mustJSON(t, f["added_tokens"], &added)
	f["added_tokens"] = toJSON(t, append(added, v.Added...))
	return toJSON(t, f)
}

// TestVariantsMatchReference covers the components that no tiny model has.
func TestVariantsMatchReference(t *testing.T) {
	var variants []hfVariant
	readJSON(t, "variants.json", &variants)
	for _, v := range variants {
		tok := must(t)(FromHF(v.file(t), nil))
		for _, s := range v.Strings {
			got := tok.Encode(nil, s.Text, EncodeOptions{AddSpecial: true, ParseSpecial: true})
			if !slices.Equal(got, s.IDs) {
				t.Errorf("%s: %q\n got %v\nwant %v", v.Name, s.Text, got, s.IDs)
			}
			if got := tok.Decode(s.IDs, true); got != s.Decoded {
				t.Errorf("%s: %v decoded\n got %q\nwant %q", v.Name, s.IDs, got, s.Decoded)
			}
		}
	}
}

// TestUnsupportedComponentsAreNamed: the error says what is not supported.
func TestUnsupportedComponentsAreNamed(t *testing.T) {
	for _, c := range []struct{ base, field, value, want string }{
		{"qwen", "model", `{"type":"Unigram"}`, "Unigram"},
		{"qwen", "model", `{"dropout":0.1}`, "dropout"},
		{"qwen", "model", `{"continuing_subword_prefix":"##"}`, "continuing_subword_prefix"},
		{"qwen", "model", `{"end_of_word_suffix":"</w>"}`, "end_of_word_suffix"},
		{"qwen", "normalizer", `{"type":"NFKC"}`, "NFKC"},
		{"qwen", "normalizer", `{"type":"Lowercase"}`, "Lowercase"},
		{"qwen", "pre_tokenizer", `{"type":"Whitespace"}`, "Whitespace"},
		{"qwen", "pre_tokenizer", `{"type":"ByteLevel","add_prefix_space":true}`, "add_prefix_space"},
		{"qwen", "pre_tokenizer", `{"type":"Split","pattern":{"Regex":"\\w+"},"behavior":"Isolated"}`, "ByteLevel"},
		{"qwen", "pre_tokenizer", `{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"\\w+|\\s+"},` +
			`"behavior":"Isolated"},{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]}`, `\\w+`},
		{"qwen", "decoder", `{"type":"WordPiece"}`, "WordPiece"},
		{"qwen", "post_processor", `{"type":"BertProcessing"}`, "BertProcessing"},
		{"llama2", "decoder", `{"type":"ByteLevel"}`, "ByteLevel"},
		{"llama2", "pre_tokenizer", `{"type":"ByteLevel","add_prefix_space":false}`, "ByteLevel"},
		{"llama2", "normalizer", `null`, "vocabulary"},
	} {
		v := hfVariant{Base: c.base, Override: map[string]json.RawMessage{c.field: json.RawMessage(c.value)}}
		_, err := FromHF(v.file(t), nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: error %v, want one that names %q", c.field, c.value, err, c.want)
		}
	}
}

func TestConfigNamesTheEnds(t *testing.T) {
	file := readFile(t, "tiny/llama2/tokenizer.json")
	for _, c := range []struct {
		config         string
		bos, eos       int32
		prefix, suffix []int32
	}{
		{``, 1, -1, []int32{1}, nil}, // BOS from the template
		{`{"bos_token":"<s>","eos_token":{"content":"</s>"}}`, 1, 2, []int32{1}, nil},
		{`{"bos_token":"<s>","eos_token":"</s>","add_bos_token":false,"add_eos_token":true}`, 1, 2, nil, []int32{2}},
		{`{"bos_token":null,"eos_token":null}`, 1, -1, []int32{1}, nil},
	} {
		tok := must(t)(FromHF(file, []byte(c.config)))
		bos, _ := tok.BOS()
		eos, _ := tok.EOS()
		if bos != c.bos || eos != c.eos || !slices.Equal(tok.prefix, c.prefix) || !slices.Equal(tok.suffix, c.suffix) {
			t.Errorf("%s: BOS %d, EOS %d, around a text %v %v; want %+v", c.config, bos, eos, tok.prefix, tok.suffix, c)
		}
	}
	if _, err := FromHF(file, []byte(`{"eos_token":"<nothing>"}`)); err == nil {
		t.Error("an unknown EOS gave no error")
	}
	tok := must(t)(FromHF(file, []byte(`{"added_tokens_decoder":{"1000":{"content":"<new>","special":true}}}`)))
	if id, ok := tok.ID("<new>"); !ok || id != 1000 || !tok.has(1000, flagSpecial) || tok.VocabSize() != 1001 {
		t.Errorf("token of the config: id %d, %v, vocabulary %d", id, ok, tok.VocabSize())
	}
}

// TestHostileFilesAreRefused: none may panic or ask for much memory.
func TestHostileFilesAreRefused(t *testing.T) {
	bl := `,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false}`
	for _, file := range []string{
		``, `null`, `{}`, `[]`, `{"model":{}}`,
		`{"model":{"vocab":{"a":2147483647}}` + bl + `}`,
		`{"model":{"vocab":{"a":-1}}` + bl + `}`,
		`{"model":{"vocab":{"a":0}},"added_tokens":[{"id":4000000,"content":"x"}]` + bl + `}`,
		`{"model":{"vocab":{"a":0},"merges":["a b"]}` + bl + `}`,
		`{"model":{"vocab":{"a":0},"merges":["ab"]}` + bl + `}`,
		`{"model":{"vocab":{"a":0},"merges":[["a"]]}` + bl + `}`,
		`{"model":{"vocab":{"a":0}},"added_tokens":[{"id":1,"content":"` + strings.Repeat("x", 513) + `"}]` + bl + `}`,
		`{"model":{"vocab":{"a":0}},"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"b"}},` +
			`{"Sequence":{"id":"A"}}],"special_tokens":{"b":{"ids":[7]}}}` + bl + `}`,
	} {
		if _, err := FromHF([]byte(file), nil); err == nil {
			t.Errorf("%.80s: no error", file)
		}
	}
}

func mustJSON(t testing.TB, data []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatal(err)
	}
}

func toJSON(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
