package model

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"waybill/kernels/cpu"
	"waybill/model/chat"
	"waybill/model/heaptest"
	"waybill/model/tokenizer"
)

// What loading a stranger's files may take of the Go heap at its peak, garbage
// included: heapFactor times what the files hold, as a JSON text of short elements
// becomes strings and lists that grow, and heapSlack, which holds the lists that
// have a limit of their own. docs/SECURITY.md states both.
const (
	heapFactor = 32
	heapSlack  = 64 << 20
)

// everything does all that `waybill serve` does with a model's files, up to its
// engine.
func everything(t testing.TB, path string) error {
	src, err := Open(path)
	if err != nil {
		return err
	}
	defer src.Close()
	var tok *tokenizer.Tokenizer
	if src.Vocab != nil {
		tok, err = tokenizer.FromGGUF(tokenizer.GGUFVocab(*src.Vocab))
	} else {
		tok, err = tokenizer.FromHF(src.TokenizerJSON, src.TokenizerConfigJSON)
	}
	if err != nil {
		return err
	}
	if source, ok := src.ChatTemplates["default"]; ok {
		if _, err := chat.Compile(source, src.TemplateTokens["bos_token"], src.TemplateTokens["eos_token"], tok.SpecialTokens()); err != nil {
			return err
		}
	}
	_, err = Load(src, cpuBackend(t, cpu.F32), LoadOptions{})
	return err
}

// proportionate loads what lies at path, which must end in an error that holds want,
// and checks what that took.
func proportionate(t *testing.T, name, path, want string) {
	t.Helper()
	size := int64(0)
	err := filepath.Walk(path, func(_ string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			size += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	got, limit := heaptest.Peak(func() { err = everything(t, path) }), heapFactor*size+heapSlack
	took := time.Since(began)
	if got > limit {
		t.Errorf("%s: loading files of %d bytes took %d of the heap, limit %d: %.200v", name, size, got, limit, err)
	}
	if took > 20*time.Second {
		t.Errorf("%s: files of %d bytes took %v: %.200v", name, size, took, err)
	}
	if err == nil || want != "" && !strings.Contains(err.Error(), want) {
		t.Errorf("%s: got %.300v, want an error with %q", name, err, want)
	}
	t.Logf("%-34s %8d bytes, %5.1f times, %v: %.120v", name, size, float64(got)/float64(size), took.Round(time.Millisecond), err)
}

// dense is how many bytes of the densest text each hostile file has: a limit of a
// few times that is told from one of hundreds.
const dense = 4 << 20

// repeated returns item again and again, separated by commas.
func repeated(item string) string {
	n := dense / (len(item) + 1)
	return strings.Repeat(item+",", n-1) + item
}

// numbered returns items with a number in each, separated by commas.
func numbered(format string) string {
	var b strings.Builder
	for i := 0; b.Len() < dense; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, format, strconv.FormatInt(int64(i), 36))
	}
	return b.String()
}

// safetensorsFile joins a header and nothing.
func safetensorsFile(header string) string {
	return string(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))) + header
}

// longTexts returns n texts that share no beginning.
func longTexts(n, length int) []string {
	rng := rand.New(rand.NewPCG(1, 2))
	out := make([]string, n)
	for i := range out {
		b := make([]byte, length)
		for k := range b {
			b[k] = byte('a' + rng.IntN(26))
		}
		out[i] = string(b)
	}
	return out
}

// A folder or file of a stranger takes memory in proportion to its size, whatever
// it claims, repeats or nests, and ends in an error before long.
func TestHostileModelsTakeMemoryInProportion(t *testing.T) {
	good := map[string]string{}
	for _, f := range []string{"config.json", "tokenizer.json", "tokenizer_config.json"} {
		b, err := os.ReadFile(filepath.Join("testdata", "tiny", "llama", f))
		if err != nil {
			t.Fatal(err)
		}
		good[f] = string(b)
	}
	// The weights are missing, so that what loads up to there ends there.
	const missing = "has neither model.safetensors"
	bpe := func(rest string) string {
		return `{"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"<|begin_of_text|>":3,"<|im_end|>":4}},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},` + rest + `}`
	}
	model := func(vocab, merges string) string {
		return `{"model":{"type":"BPE","vocab":{` + vocab + `},"merges":[` + merges + `]},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false}}`
	}
	config := func(change fields) string { return string(withFields(t, "llama", change)) }
	added := func(texts []string) string {
		var b strings.Builder
		for i, s := range texts {
			fmt.Fprintf(&b, `,{"id":%d,"content":"%s"}`, 5+i, s)
		}
		return `"added_tokens":[` + b.String()[1:] + `]`
	}
	deep := strings.Repeat("[", dense)
	ids := make([]int, 150_000)
	for i := range ids {
		ids[i] = i
	}
	for _, c := range []struct {
		name, file, text, want string
	}{
		{"parts of a normalizer", "tokenizer.json", bpe(`"normalizer":{"type":"Sequence","normalizers":[` + repeated("{}") + `]}`), "normalizer"},
		{"parts of a decoder", "tokenizer.json", bpe(`"decoder":{"type":"Sequence","decoders":[` + repeated("{}") + `]}`), "decoder"},
		{"parts of a template", "tokenizer.json", bpe(`"post_processor":{"type":"TemplateProcessing","single":[` + repeated("{}") + `]}`), "post_processor"},
		{"tokens of a template", "tokenizer.json", bpe(`"post_processor":{"type":"TemplateProcessing","special_tokens":{` + numbered(`"%s":{}`) + `}}`), "post_processor"},
		{"nested sequences", "tokenizer.json", bpe(`"normalizer":` + strings.Repeat(`{"type":"Sequence","normalizers":[`, 4000) + strings.Repeat(`]}`, 4000)), "normalizer"},
		{"added tokens", "tokenizer.json", bpe(`"added_tokens":[` + repeated("{}") + `]`), "added"},
		{"long added tokens", "tokenizer.json", bpe(added(longTexts(dense/512, 512))), "added"},
		{"empty merges", "tokenizer.json", model(`"a":0`, repeated(`""`)), ""},
		{"merges", "tokenizer.json", model(`"a":0,"aa":1`, repeated(`"a a"`)), ""},
		{"merges as lists", "tokenizer.json", model(`"a":0`, repeated(`["",""]`)), ""},
		{"one merge of many sides", "tokenizer.json", model(`"a":0`, `[`+repeated(`""`)+`]`), "more than two sides"},
		{"vocabulary", "tokenizer.json", model(numbered(`"%s":1`), ""), ""},
		{"one long piece", "tokenizer.json", model(`"`+strings.Repeat("x", dense)+`":0`, ""), ""},
		{"deep", "tokenizer.json", deep, ""},
		{"deep in a field", "tokenizer.json", bpe(`"x":` + deep), ""},
		{"fields of the configuration", "tokenizer_config.json", `{` + numbered(`"%s":0`) + `}`, missing},
		{"chat templates", "tokenizer_config.json", `{"chat_template":[` + repeated("{}") + `]}`, "chat_template"},
		{"a long chat template", "tokenizer_config.json", `{"chat_template":"` + strings.Repeat("{{x}}", dense/5) + `"}`, "template"},
		{"tokens by number", "tokenizer_config.json", `{"added_tokens_decoder":{` + numbered(`"9%s":{}`) + `}}`, ""},
		{"layer types", "config.json", config(fields{"layer_types": make([]string, 200_000)}), ""},
		{"end tokens", "config.json", config(fields{"eos_token_id": ids, "vocab_size": 1 << 20}), "eos_token_id"},
		{"end tokens of generation", "generation_config.json", `{"eos_token_id":` + strings.ReplaceAll(fmt.Sprint(ids[:150]), " ", ",") + `}`, "eos_token_id"},
		{"a large configuration", "config.json", `{"x":[` + repeated("0") + `]}`, "more than"},
		{"deep configuration", "config.json", `{"x":` + deep[:1<<19], ""},
		{"huge claims", "config.json", config(fields{"num_hidden_layers": maxLayers, "num_attention_heads": maxHeads, "num_key_value_heads": maxHeads, "head_dim": maxHeadDim}), missing},
		{"offsets", "model.safetensors", safetensorsFile(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[` + repeated("0") + `]}}`), "data_offsets"},
		{"null offsets", "model.safetensors", safetensorsFile(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[` + repeated("null") + `]}}`), "data_offsets"},
		{"dimensions", "model.safetensors", safetensorsFile(`{"a":{"dtype":"U8","shape":[` + repeated("1") + `],"data_offsets":[0,1]}}`), "dimensions"},
		{"tensors", "model.safetensors", safetensorsFile(`{` + numbered(`"%s":{}`) + `}`), ""},
		{"notes", "model.safetensors", safetensorsFile(`{"__metadata__":{` + numbered(`"%s":""`) + `}}`), ""},
		{"deep header", "model.safetensors", safetensorsFile(`{"a":` + deep), ""},
		{"an index", "model.safetensors.index.json", `{"weight_map":{` + numbered(`"%s":"a.safetensors"`) + `}}`, "a.safetensors"},
	} {
		files := maps.Clone(good)
		files[c.file] = c.text
		dir := filepath.Join(t.TempDir(), strings.ReplaceAll(c.name, " ", "-"))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range files {
			writeFile(t, dir, name, []byte(text))
		}
		proportionate(t, c.name, dir, c.want)
	}
}

// The same of GGUF files.
func TestHostileGGUFFilesTakeMemoryInProportion(t *testing.T) {
	head := func(tensors, keys uint64, rest []byte) []byte {
		b := binary.LittleEndian.AppendUint32([]byte("GGUF"), 3)
		b = binary.LittleEndian.AppendUint64(b, tensors)
		return append(binary.LittleEndian.AppendUint64(b, keys), rest...)
	}
	// list encodes an array of n elements of a type.
	list := func(typ uint32, n int, data []byte) []byte {
		b := binary.LittleEndian.AppendUint32(nil, 9)
		b = binary.LittleEndian.AppendUint32(b, typ)
		return append(binary.LittleEndian.AppendUint64(b, uint64(n)), data...)
	}
	with := func(values map[string]any, rows int) []byte {
		w := tinyGGUF(t, "llama")
		for key, v := range values {
			w.set(key, v)
		}
		for i := range w.tensors {
			if x := &w.tensors[i]; x.name == "token_embd.weight" && rows > 0 {
				x.dtype, x.shape, x.data = "F16", []int{rows, 64}, make([]byte, rows*128)
			}
		}
		return w.bytes()
	}
	long := longTexts(dense/512, 512)
	var keys, tensors bytes.Buffer
	numKeys, numTensors := 0, 0
	for ; keys.Len() < dense; numKeys++ {
		leString(&keys, strconv.FormatInt(int64(numKeys), 36))
		le(&keys, uint32(0))
		keys.WriteByte(1)
	}
	for ; tensors.Len() < dense; numTensors++ {
		leString(&tensors, strconv.FormatInt(int64(numTensors), 36))
		le(&tensors, uint32(1))
		le(&tensors, uint64(1))
		le(&tensors, uint32(0))
		le(&tensors, uint64(0))
	}
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"keys", head(0, uint64(numKeys), keys.Bytes()), "metadata count"},
		{"tensors", head(uint64(numTensors), 0, tensors.Bytes()), "tensor"},
		{"claimed keys", head(0, 2*dense/13, make([]byte, 2*dense)), "metadata count"},
		{"claimed tensors", head(2*dense/32, 0, make([]byte, 2*dense)), "tensor count"},
		{"empty tokens", with(map[string]any{"tokenizer.ggml.tokens": list(8, dense/8, make([]byte, dense))}, 0), "vocabulary"},
		{"long user-defined tokens", with(map[string]any{
			"tokenizer.ggml.tokens": long, "tokenizer.ggml.token_type": slices.Repeat([]int32{4}, len(long)),
		}, len(long)), "added tokens"},
		{"merges", with(map[string]any{"tokenizer.ggml.merges": slices.Repeat([]string{"a b"}, dense/11)}, 0), ""},
		{"a long chat template", with(map[string]any{"tokenizer.chat_template": strings.Repeat("{{x}}", dense/5)}, 0), "template"},
		{"nested lists", with(map[string]any{"nested": list(9, dense/12, slices.Repeat(append(make([]byte, 4), make([]byte, 8)...), dense/12)), "general.alignment": 3}, 0), "general.alignment"},
		{"huge claims", with(map[string]any{
			"llama.block_count": maxLayers, "llama.attention.head_count": maxHeads, "llama.attention.head_count_kv": maxHeads,
			"llama.attention.key_length": maxHeadDim, "llama.attention.value_length": maxHeadDim, "llama.rope.dimension_count": maxHeadDim,
		}, 0), "shape"},
	} {
		proportionate(t, c.name, writeFile(t, t.TempDir(), "m.gguf", c.data), c.want)
	}
}
