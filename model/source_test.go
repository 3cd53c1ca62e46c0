package model

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
)

func openSource(t testing.TB, path string) *Source {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestFolderSourceHoldsTokenizerTemplateAndDefaults(t *testing.T) {
	s := openSource(t, filepath.Join("testdata", "tiny", "llama"))
	if s.Name != "llama" || s.Vocab != nil || len(s.TokenizerJSON) == 0 || len(s.TokenizerConfigJSON) == 0 {
		t.Errorf("got name %q, vocab %v, %d and %d bytes of tokenizer", s.Name, s.Vocab, len(s.TokenizerJSON), len(s.TokenizerConfigJSON))
	}
	if !strings.HasPrefix(s.ChatTemplates["default"], "{{ bos_token }}{% for message") {
		t.Errorf("template: got %q", s.ChatTemplates["default"])
	}
	want := map[string]string{"bos_token": "<|begin_of_text|>", "eos_token": "<|im_end|>", "pad_token": "<|end_of_text|>"}
	if !reflect.DeepEqual(s.TemplateTokens, want) {
		t.Errorf("template tokens: got %v, want %v", s.TemplateTokens, want)
	}
	if !reflect.DeepEqual(s.Config.EOSTokenIDs, []int32{999}) || s.Config.BOSTokenID != 996 {
		t.Errorf("ends %v, beginning %d", s.Config.EOSTokenIDs, s.Config.BOSTokenID)
	}
}

func TestFolderSourceVariants(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "config.json", []byte(tinyConfig(t, "llama")))
	writeFile(t, dir, "generation_config.json", []byte(`{"eos_token_id":[7,999,8],"temperature":0.6,"top_k":20,"top_p":0.95,"do_sample":true}`))
	writeFile(t, dir, "tokenizer_config.json", []byte(`{"bos_token":{"content":"<s>","lstrip":false},"eos_token":null,
		"chat_template":[{"name":"default","template":"D"},{"name":"tool_use","template":"T"}]}`))
	s := openSource(t, dir)
	if !reflect.DeepEqual(s.Config.EOSTokenIDs, []int32{999, 7, 8}) {
		t.Errorf("ends: got %v, want the config's first, each once", s.Config.EOSTokenIDs)
	}
	g := s.Generation
	if g.Temperature == nil || *g.Temperature != 0.6 || g.TopK == nil || *g.TopK != 20 || g.MinP != nil {
		t.Errorf("generation defaults: got %+v", g)
	}
	if s.TemplateTokens["bos_token"] != "<s>" || len(s.TemplateTokens) != 1 {
		t.Errorf("template tokens: got %v", s.TemplateTokens)
	}
	if s.ChatTemplates["default"] != "D" || s.ChatTemplates["tool_use"] != "T" {
		t.Errorf("templates: got %v", s.ChatTemplates)
	}
	writeFile(t, dir, "chat_template.jinja", []byte("J"))
	if s := openSource(t, dir); s.ChatTemplates["default"] != "J" {
		t.Errorf("template: got %q, want that of chat_template.jinja", s.ChatTemplates["default"])
	}
	for name, content := range map[string]string{
		"tokenizer_config.json":  `{"chat_template":5}`,
		"generation_config.json": `{"eos_token_id":"x"}`,
		"config.json":            strings.Repeat(" ", maxConfigBytes+1),
	} {
		dir := t.TempDir()
		writeFile(t, dir, "config.json", []byte(tinyConfig(t, "llama")))
		writeFile(t, dir, name, []byte(content))
		_, err := Open(dir)
		wantError(t, name, err, name)
	}
}

func TestNamedPipesAreErrorsNotHangs(t *testing.T) {
	for _, name := range []string{"config.json", "tokenizer.json", "model.safetensors", "model.safetensors.index.json"} {
		dir := t.TempDir()
		writeFile(t, dir, "config.json", []byte(tinyConfig(t, "llama")))
		os.Remove(filepath.Join(dir, name))
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o644); err != nil {
			t.Skipf("no named pipes here: %v", err)
		}
		wantError(t, name, loadError(t, dir), name+" is not a regular file")
	}
}

func TestGGUFSourceHoldsVocabularyAndTemplate(t *testing.T) {
	path := writeFile(t, t.TempDir(), "x.gguf", tinyGGUF(t, "mistral").bytes())
	s := openSource(t, path)
	if s.Name != "tiny mistral" || s.ChatTemplates["default"] != "{{ messages }}" || s.TokenizerJSON != nil {
		t.Errorf("got %+v", s)
	}
	if s.Vocab == nil || len(s.Vocab.Tokens) != 3 || s.TemplateTokens["eos_token"] != "<|im_end|>" {
		t.Errorf("vocabulary %+v, template tokens %v", s.Vocab, s.TemplateTokens)
	}
	want, err := parseHFConfig([]byte(tinyConfig(t, "mistral")))
	if err != nil {
		t.Fatal(err)
	}
	// The vocabulary is the test's own; the rest must agree with config.json.
	got := s.Config
	want.BOSTokenID, want.EOSTokenIDs = -1, []int32{2}
	want.RMSNormEps = float64(float32(want.RMSNormEps))
	want.RopeScaling.Type = ""
	if !reflect.DeepEqual(got, want) {
		t.Errorf("config:\n got %+v\nwant %+v", got, want)
	}
}

func TestDefaultModelSource(t *testing.T) {
	s := openSource(t, smolPath(t))
	c := s.Config
	if c.Architecture != "llama" || c.HiddenSize != 576 || c.NumLayers != 30 || c.NumHeads != 9 || c.NumKVHeads != 3 ||
		c.HeadDim != 64 || c.IntermediateSize != 1536 || c.VocabSize != 49152 || c.RopeTheta != 100000 || !c.TieWordEmbeddings {
		t.Errorf("config: got %+v", c)
	}
	// <|im_end|> by the file's key, <|endoftext|> by its text.
	if !reflect.DeepEqual(c.EOSTokenIDs, []int32{2, 0}) {
		t.Errorf("ends: got %v, want [2 0]", c.EOSTokenIDs)
	}
	v := s.Vocab
	if v.Model != "gpt2" || v.Pre != "smollm" || len(v.Tokens) != 49152 || len(v.Merges) != 48900 || v.AddBOS || v.BOS != 1 {
		t.Errorf("vocabulary: %q %q, %d tokens, %d merges, add BOS %v, BOS %d", v.Model, v.Pre, len(v.Tokens), len(v.Merges), v.AddBOS, v.BOS)
	}
	if !strings.Contains(s.ChatTemplates["default"], "<|im_start|>") {
		t.Errorf("template: got %q", s.ChatTemplates["default"])
	}
}
