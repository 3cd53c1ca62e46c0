package model

import (
	"encoding/json"
	"math"
	"path/filepath"
	"reflect"
	"testing"

	"waybill/model/gguf"
)

// withFields returns the tiny config of name with fields replaced; a nil value
// deletes the field.
func withFields(t testing.TB, name string, fields map[string]any) []byte {
	t.Helper()
	var doc map[string]any
	if err := json.Unmarshal([]byte(tinyConfig(t, name)), &doc); err != nil {
		t.Fatal(err)
	}
	for k, v := range fields {
		if v == nil {
			delete(doc, k)
		} else {
			doc[k] = v
		}
	}
	data, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

type fields = map[string]any

func TestBothLayoutsOfConfigAgree(t *testing.T) {
	v4, err := parseHFConfig([]byte(tinyConfig(t, "llama")))
	if err != nil {
		t.Fatal(err)
	}
	want := RopeScaling{Type: "llama3", Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositionEmbeddings: 64}
	if v4.RopeScaling != want || v4.RopeTheta != 10000 {
		t.Errorf("scaling: got %+v, theta %g", v4.RopeScaling, v4.RopeTheta)
	}
	v5, err := parseHFConfig(withFields(t, "llama", fields{"rope_theta": nil, "rope_scaling": nil, "torch_dtype": nil,
		"dtype": "bfloat16", "rope_parameters": fields{"rope_theta": 10000.0, "rope_type": "llama3", "factor": 8.0,
			"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}}))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(v4, v5) {
		t.Errorf("layouts differ:\nv4 %+v\nv5 %+v", v4, v5)
	}
}

func TestConfigDefaultsOfEachClass(t *testing.T) {
	cases := []struct {
		what, name string
		change     fields
		got        func(c *Config) any
		want       any
	}{
		{"llama without kv heads", "llama", fields{"num_key_value_heads": nil}, func(c *Config) any { return c.NumKVHeads }, 4},
		{"llama without head_dim", "llama", fields{"head_dim": nil}, func(c *Config) any { return c.HeadDim }, 16},
		{"qwen3 without head_dim", "qwen3", fields{"head_dim": nil}, func(c *Config) any { return c.HeadDim }, 128},
		{"llama ignores a window", "llama", fields{"sliding_window": 8}, func(c *Config) any { return c.Window(0) }, 0},
		{"mistral window", "mistral", nil, func(c *Config) any { return c.Window(3) }, 24},
		{"mistral without the field", "mistral", fields{"sliding_window": nil}, func(c *Config) any { return c.Window(0) }, 4096},
		{"mistral null window", "mistral", fields{"sliding_window": json.RawMessage("null")}, func(c *Config) any { return c.Window(0) }, 0},
		{"qwen2 switched off", "qwen2", fields{"sliding_window": 8}, func(c *Config) any { return c.Window(2) }, 0},
		{"qwen2 upper layers", "qwen2", fields{"sliding_window": 8, "use_sliding_window": true, "layer_types": nil, "max_window_layers": 2},
			func(c *Config) any { return []int{c.Window(0), c.Window(1), c.Window(2)} }, []int{0, 0, 8}},
		{"qwen3 layer_types", "qwen3", fields{"sliding_window": 8, "use_sliding_window": true,
			"layer_types": []string{"sliding_attention", "full_attention", "sliding_attention"}},
			func(c *Config) any { return []int{c.Window(0), c.Window(1), c.Window(2)} }, []int{8, 0, 8}},
		{"list of ends", "llama", fields{"eos_token_id": []int{5, 6, 5}}, func(c *Config) any { return c.EOSTokenIDs }, []int32{5, 6}},
		{"end outside of the vocabulary", "llama", fields{"eos_token_id": []int{1000, -1, 5}}, func(c *Config) any { return c.EOSTokenIDs }, []int32{5}},
		{"null beginning", "qwen2", nil, func(c *Config) any { return c.BOSTokenID }, int32(-1)},
		{"old name of the type", "llama", fields{"rope_scaling": fields{"type": "linear", "factor": 2.0}},
			func(c *Config) any { return c.RopeScaling }, RopeScaling{Type: "linear", Factor: 2}},
		{"no class, only the type", "qwen2", fields{"architectures": nil}, func(c *Config) any { return c.Architecture }, "qwen2"},
	}
	for _, c := range cases {
		cfg, err := parseHFConfig(withFields(t, c.name, c.change))
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
		} else if got := c.got(&cfg); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.what, got, c.want)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	cases := []struct {
		change fields
		want   string
	}{
		{fields{"architectures": []string{"GPT2LMHeadModel"}}, `architecture "GPT2LMHeadModel" (model_type "llama") is not supported`},
		{fields{"architectures": nil, "model_type": "mamba"}, `model_type "mamba"`},
		{fields{"hidden_act": "gelu"}, `hidden_act "gelu" is not supported, expected silu`},
		{fields{"attention_bias": true}, "attention_bias"},
		{fields{"mlp_bias": true}, "mlp_bias"},
		{fields{"quantization_config": fields{"quant_method": "awq"}}, `quant_method "awq"`},
		{fields{"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"},
		{fields{"rope_scaling": fields{"rope_type": "yarn", "factor": 4}}, `type "yarn" is not supported`},
		{fields{"rope_scaling": fields{"rope_type": "linear"}}, "factor is 0"},
		{fields{"rope_scaling": fields{"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4}}, "low_freq_factor 4"},
		{fields{"rope_scaling": fields{"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}}, "original_max_position_embeddings is 0"},
		{fields{"hidden_size": 0}, "hidden_size is 0"},
		{fields{"hidden_size": 1 << 40}, "hidden_size is 1099511627776"},
		{fields{"hidden_size": "64"}, "cannot unmarshal"},
		{fields{"num_hidden_layers": -1}, "num_hidden_layers is -1"},
		{fields{"num_attention_heads": 0, "head_dim": nil}, "head_dim is missing"},
		{fields{"num_attention_heads": 3}, "not a multiple of num_key_value_heads 2"},
		{fields{"num_key_value_heads": 0}, "num_key_value_heads is 0"},
		{fields{"head_dim": 15}, "head_dim 15 is odd"},
		{fields{"vocab_size": nil}, "vocab_size is 0"},
		{fields{"rms_norm_eps": 0.0}, "rms_norm_eps is 0"},
		{fields{"rope_theta": -1.0}, "rope_theta is -1"},
		{fields{"max_position_embeddings": 0}, "max_position_embeddings is 0"},
		{fields{"eos_token_id": make([]int, 1)}, ""},
	}
	for _, c := range cases {
		_, err := parseHFConfig(withFields(t, "llama", c.change))
		if c.want == "" {
			if err != nil {
				t.Errorf("%v: %v", c.change, err)
			}
			continue
		}
		wantError(t, c.want, err, c.want)
	}
	_, err := parseHFConfig(withFields(t, "qwen3", fields{"num_key_value_heads": nil}))
	wantError(t, "qwen3", err, "num_key_value_heads is missing")
	_, err = parseHFConfig(withFields(t, "qwen3", fields{"layer_types": []string{"full_attention"}}))
	wantError(t, "layer_types", err, "layer_types has 1 entries, expected 3")
	_, err = parseHFConfig(withFields(t, "qwen3", fields{"layer_types": []string{"linear_attention"}}))
	wantError(t, "layer_types", err, `layer_types[0] is "linear_attention"`)
}

func TestGGUFConfigErrors(t *testing.T) {
	cases := []struct {
		change func(w *ggufWriter)
		want   string
	}{
		{func(w *ggufWriter) { w.set("split.count", 2) }, "one of 2 parts"},
		{func(w *ggufWriter) { w.set("llama.expert_count", 8) }, "llama.expert_count is 8, expected 0"},
		{func(w *ggufWriter) { w.set("llama.rope.scaling.type", "yarn") }, `"yarn" is not supported`},
		{func(w *ggufWriter) { w.set("llama.logit_scale", 2.0) }, "llama.logit_scale is not supported"},
		{func(w *ggufWriter) { w.tensors = nil }, "token_embd.weight is missing"},
	}
	for _, c := range cases {
		w := tinyGGUF(t, "llama")
		c.change(w)
		_, err := Open(writeFile(t, t.TempDir(), "m.gguf", w.bytes()))
		wantError(t, c.want, err, c.want, "m.gguf")
	}
	w := &ggufWriter{}
	w.set("general.architecture", "mamba")
	_, err := Open(writeFile(t, t.TempDir(), "m.gguf", w.bytes()))
	wantError(t, "mamba", err, `architecture "mamba" is not supported`)
}

func TestLinearAndLlama3Frequencies(t *testing.T) {
	c := Config{HeadDim: 4, RopeTheta: 10000}
	if got, want := c.invFreq(), []float32{1, 0.01}; !reflect.DeepEqual(got, want) {
		t.Errorf("plain: got %v, want %v", got, want)
	}
	c.RopeScaling = RopeScaling{Type: "linear", Factor: 4}
	if got, want := c.invFreq(), []float32{0.25, 0.0025}; !reflect.DeepEqual(got, want) {
		t.Errorf("linear: got %v, want %v", got, want)
	}
	r := RopeScaling{Type: "llama3", Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositionEmbeddings: 64}
	turns := func(n float64) float64 { return n * 2 * math.Pi / 64 }
	for _, c := range []struct{ turns, share float64 }{{10, 1}, {4, 1}, {2.5, 0.5 + 0.5/8}, {1, 1.0 / 8}, {0.1, 1.0 / 8}} {
		if got, want := r.apply(turns(c.turns)), turns(c.turns)*c.share; math.Abs(got-want) > 1e-12 {
			t.Errorf("llama3, %g turns: got %g, want %g", c.turns, got, want)
		}
	}
}

// FuzzHFConfig: whatever the text, an error or sizes that can be computed with.
func FuzzHFConfig(f *testing.F) {
	for _, name := range tinyModels {
		f.Add([]byte(tinyConfig(f, name)))
	}
	f.Add([]byte(`{"model_type":"qwen2","num_hidden_layers":9223372036854775807,"use_sliding_window":true}`))
	f.Add([]byte(`{"model_type":"llama","hidden_size":-64,"num_attention_heads":-4,"head_dim":null}`))
	f.Add([]byte(`{"model_type":"llama","rope_scaling":{"factor":1e-320},"eos_token_id":[[]]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		parseGenerationConfig(data)
		c, err := parseHFConfig(data)
		if err != nil {
			return
		}
		if c.NumLayers > maxLayers || c.NumHeads%c.NumKVHeads != 0 || len(c.invFreq()) != c.HeadDim/2 {
			t.Fatalf("accepted %+v", c)
		}
		c.Window(0)
		c.Window(c.NumLayers - 1)
	})
}

// FuzzGGUFModel runs everything up to packing over a hostile file.
func FuzzGGUFModel(f *testing.F) {
	for _, name := range tinyModels {
		w := tinyGGUF(f, name)
		f.Add(w.bytes())
		// Small seeds mutate better: one layer's names, next to no data.
		for i := range w.tensors {
			w.tensors[i].shape, w.tensors[i].data = []int{1, 1}, make([]byte, 4)
		}
		f.Add(w.bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := gguf.Parse("f", data)
		if err != nil {
			return
		}
		c, err := parseGGUFConfig(file)
		if err != nil {
			return
		}
		l := &loader{cfg: &c, set: ggufSet{file}, found: map[string]bool{}, dry: true, interleaved: true}
		loaders[c.Architecture](l)
		if l.total > int64(len(data)) {
			t.Fatalf("would pack %d bytes of a file of %d", l.total, len(data))
		}
	})
}

func TestTinyConfigsAreAccepted(t *testing.T) {
	for _, name := range tinyModels {
		if s, err := Open(filepath.Join("testdata", "tiny", name)); err != nil || s.Config.HiddenSize != 64 {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}
