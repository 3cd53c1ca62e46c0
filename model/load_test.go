package model

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"waybill/kernels"
	"waybill/kernels/cpu"
)

// TestGGUFGivesTheSameBitsAsTheFolder converts the tiny models and compares the
// logits of a prompt. llama's scaling passes through float32 divisors there, so
// that one only has to choose the golden tokens.
func TestGGUFGivesTheSameBitsAsTheFolder(t *testing.T) {
	for _, name := range tinyModels {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("testdata", "tiny", name)
			path := writeFile(t, t.TempDir(), "tiny.gguf", tinyGGUF(t, name).bytes())
			b := cpuBackend(t, cpu.F32)
			fromFolder := newRunner(t, loadModel(t, dir, b), 16, kernels.F32)
			fromGGUF := newRunner(t, loadModel(t, path, b), 16, kernels.F32)
			for _, p := range readGolden(t, filepath.Join(dir, "golden.json")).Prompts {
				var s1, s2 runSeq
				want := fromFolder.prefill(&s1, p.IDs, wholePrompt)
				got := fromGGUF.prefill(&s2, p.IDs, wholePrompt)
				if name != "llama" && !slices.Equal(got, want) {
					t.Errorf("prompt %s: logits differ", p.ID)
				}
				if tokens, _ := fromGGUF.generate(&s2, got, len(p.Tokens)); !slices.Equal(tokens, p.Tokens) {
					t.Errorf("prompt %s:\n got %v\nwant %v", p.ID, tokens, p.Tokens)
				}
				fromFolder.release(&s1)
				fromGGUF.release(&s2)
			}
		})
	}
}

// tinyTensors returns the tensors of the tiny llama, changed by edit.
func tinyTensors(t testing.TB, edit func(x *rawTensor) (keep bool)) []rawTensor {
	t.Helper()
	var out []rawTensor
	for _, x := range readTensors(t, filepath.Join("testdata", "tiny", "llama")) {
		if edit(&x) {
			out = append(out, x)
		}
	}
	return out
}

func loadError(t testing.TB, path string) error {
	t.Helper()
	src, err := Open(path)
	if err != nil {
		return err
	}
	_, err = Load(src, cpuBackend(t, cpu.F32), LoadOptions{})
	return err
}

func wantError(t testing.TB, what string, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("%s: got %v, want an error with %q", what, err, w)
		}
	}
}

func TestWrongTensorsNameFileTensorExpectedAndFound(t *testing.T) {
	const q = "model.layers.1.self_attn.q_proj.weight"
	cases := []struct {
		what string
		edit func(x *rawTensor) bool
		want []string
	}{
		{"missing", func(x *rawTensor) bool { return x.name != q }, []string{q + " [64 64] is missing"}},
		{"wrong shape", func(x *rawTensor) bool {
			if x.name == q {
				x.shape = []int{32, 128}
			}
			return true
		}, []string{"model.safetensors: tensor " + q + ": shape [32 128], expected [64 64]"}},
		{"wrong rank", func(x *rawTensor) bool {
			if x.name == q {
				x.shape = []int{64 * 64}
			}
			return true
		}, []string{"shape [4096], expected [64 64]"}},
		{"wrong type", func(x *rawTensor) bool {
			if x.name == q {
				x.dtype = "I16"
			}
			return true
		}, []string{q + ": type I16, expected one of F32, F16, BF16"}},
	}
	for _, c := range cases {
		dir := writeFolder(t, tinyConfig(t, "llama"), tinyTensors(t, c.edit))
		wantError(t, c.what, loadError(t, dir), append(c.want, dir)...)
	}
}

func TestExtraTensorsAreErrorsButForHarmlessOnes(t *testing.T) {
	all := func(*rawTensor) bool { return true }
	extra := rawTensor{"model.layers.0.mlp.experts.0.weight", "U8", []int{1}, []byte{0}}
	dir := writeFolder(t, tinyConfig(t, "llama"), append(tinyTensors(t, all), extra))
	wantError(t, "extra", loadError(t, dir), "1 tensors that a llama decoder does not have", extra.name)

	extra.name = "model.layers.0.self_attn.rotary_emb.inv_freq"
	dir = writeFolder(t, tinyConfig(t, "llama"), append(tinyTensors(t, all), extra))
	if err := loadError(t, dir); err != nil {
		t.Errorf("rotary buffer: %v", err)
	}

	// A head that the config says is tied is stored once more by some writers.
	tied := strings.Replace(tinyConfig(t, "llama"), `"tie_word_embeddings": false`, `"tie_word_embeddings": true`, 1)
	if err := loadError(t, writeFolder(t, tied, tinyTensors(t, all))); err != nil {
		t.Errorf("stored tied head: %v", err)
	}

	w := tinyGGUF(t, "llama")
	w.tensors = append(w.tensors, rawTensor{"blk.0.attn_q.bias", "F32", []int{1}, make([]byte, 4)})
	path := writeFile(t, t.TempDir(), "extra.gguf", w.bytes())
	wantError(t, "extra in GGUF", loadError(t, path), "1 tensors", "blk.0.attn_q.bias")
}

func TestWrongGGUFTensors(t *testing.T) {
	edit := func(change func(x *rawTensor) bool) string {
		w := tinyGGUF(t, "llama")
		w.tensors = slices.DeleteFunc(w.tensors, func(x rawTensor) bool { return x.name == "blk.1.attn_q.weight" && !change(&x) })
		for i := range w.tensors {
			change(&w.tensors[i])
		}
		return writeFile(t, t.TempDir(), "m.gguf", w.bytes())
	}
	wantError(t, "missing", loadError(t, edit(func(*rawTensor) bool { return false })),
		"m.gguf: tensor blk.1.attn_q.weight [64 64] is missing")
	wantError(t, "shape", loadError(t, edit(func(x *rawTensor) bool {
		if x.name == "blk.1.attn_q.weight" {
			x.shape = []int{128, 32}
		}
		return true
	})), "m.gguf: tensor blk.1.attn_q.weight: shape [128 32], expected [64 64]")
	wantError(t, "divisors", loadError(t, edit(func(x *rawTensor) bool {
		if x.name == ropeFreqs {
			x.data = make([]byte, len(x.data))
		}
		return true
	})), "rope_freqs.weight: element 0 is 0, expected more than 0")
}

func TestProgressEndsAtTheTotal(t *testing.T) {
	src, err := Open(filepath.Join("testdata", "tiny", "qwen2"))
	if err != nil {
		t.Fatal(err)
	}
	var last, all int64
	m, err := Load(src, cpuBackend(t, cpu.F32), LoadOptions{Progress: func(done, total int64) {
		if done <= last || done > total {
			t.Errorf("progress went from %d to %d of %d", last, done, total)
		}
		last, all = done, total
	}})
	if err != nil {
		t.Fatal(err)
	}
	if last != all || all != m.NumParams()*4 {
		t.Errorf("progress ended at %d of %d, want %d bytes of float32", last, all, m.NumParams()*4)
	}
	if m.Quantized() || m.WeightBytes() <= 0 {
		t.Errorf("quantized %v, %d weight bytes", m.Quantized(), m.WeightBytes())
	}
}

func TestDummyNeedsOnlyTheConfigAndIsReproducible(t *testing.T) {
	for _, name := range tinyModels {
		dir := t.TempDir()
		writeFile(t, dir, "config.json", []byte(tinyConfig(t, name)))
		var first []float32
		for range 2 {
			src, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			m, err := Load(src, cpuBackend(t, cpu.F32), LoadOptions{Dummy: true})
			if err != nil {
				t.Fatal(err)
			}
			var s runSeq
			logits := newRunner(t, m, 16, kernels.F32).prefill(&s, []int32{1, 2, 3}, wholePrompt)
			if first == nil {
				first = logits
			}
			if !slices.Equal(logits, first) {
				t.Errorf("%s: two loads of dummy weights give different logits", name)
			}
		}
		spread := slices.Max(first) - slices.Min(first)
		if !(spread > 0.5 && spread < 50) {
			t.Errorf("%s: logits spread over %g, want a plausible range", name, spread)
		}
	}
}

func TestFolderWithoutWeights(t *testing.T) {
	dir := t.TempDir()
	wantError(t, "empty folder", loadError(t, dir), "has no config.json")
	writeFile(t, dir, "config.json", []byte(tinyConfig(t, "llama")))
	wantError(t, "no weights", loadError(t, dir), "has neither model.safetensors nor")
	wantError(t, "no path", loadError(t, filepath.Join(dir, "none")), "no such file")
}
