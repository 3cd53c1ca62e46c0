package model

import (
	"fmt"
	"hash/fnv"
	"math"
	"strings"

	"waybill/kernels"
	"waybill/kernels/quant"
	"waybill/model/gguf"
	"waybill/model/safetensors"
)

// fileTensor is a tensor of either file format.
type fileTensor struct {
	file, name string
	dtype      kernels.DType
	shape      []int
	data       []byte
}

// tensorSet is where a model's weights come from. Tensors go by their Hugging
// Face names everywhere above it.
type tensorSet interface {
	// find returns the tensor called name; want is the shape that it should have,
	// which the caller checks. It is an error if there is none.
	find(name string, want []int) (fileTensor, error)
	// extra returns names, as the file has them, of tensors that were never found.
	extra(found map[string]bool) []string
	close() error
}

// safetensorsSet is the weights of a folder.
type safetensorsSet struct {
	dir string
	*safetensors.Folder
}

func (s safetensorsSet) find(name string, want []int) (fileTensor, error) {
	t, ok := s.Tensor(name)
	if !ok {
		return fileTensor{}, fmt.Errorf("%s: tensor %s %v is missing", s.dir, name, want)
	}
	d, ok := map[string]kernels.DType{"F32": kernels.F32, "F16": kernels.F16, "BF16": kernels.BF16}[t.DType]
	if !ok {
		return fileTensor{}, fmt.Errorf("%s: tensor %s: type %s, expected one of F32, F16, BF16", t.File, name, t.DType)
	}
	return fileTensor{file: t.File, name: name, dtype: d, shape: t.Shape, data: t.Data}, nil
}

// extra leaves out what no architecture has a use for.
func (s safetensorsSet) extra(found map[string]bool) []string {
	var names []string
	for _, name := range s.Names() {
		// Old checkpoints store the rotary frequencies, which follow from the config.
		if !found[name] && !strings.HasSuffix(name, ".rotary_emb.inv_freq") {
			names = append(names, name)
		}
	}
	return names
}

func (s safetensorsSet) close() error { return s.Close() }

// ggufSet is the weights of a GGUF file.
type ggufSet struct{ f *gguf.File }

func (s ggufSet) find(name string, want []int) (fileTensor, error) {
	t, ok := s.f.Tensor(ggufName(name))
	if !ok {
		return fileTensor{}, fmt.Errorf("%s: tensor %s %v is missing", s.f.Path(), ggufName(name), want)
	}
	return fileTensor{file: s.f.Path(), name: t.Name, dtype: t.DType, shape: t.Shape, data: t.Data}, nil
}

// extra compares in the file's names, since rope_freqs has no other.
func (s ggufSet) extra(found map[string]bool) []string {
	known := make(map[string]bool, len(found))
	for name := range found {
		known[ggufName(name)] = true
	}
	var names []string
	for _, t := range s.f.Tensors() {
		if !known[t.Name] {
			names = append(names, t.Name)
		}
	}
	return names
}

func (s ggufSet) close() error { return s.f.Close() }

// ggufNames maps the parts of Hugging Face names to GGUF's (gguf-py's
// tensor_mapping.py).
var ggufNames = strings.NewReplacer(
	"model.embed_tokens.", "token_embd.",
	"model.norm.", "output_norm.",
	"lm_head.", "output.",
	"model.layers.", "blk.",
	"input_layernorm.", "attn_norm.",
	"self_attn.q_proj.", "attn_q.",
	"self_attn.k_proj.", "attn_k.",
	"self_attn.v_proj.", "attn_v.",
	"self_attn.o_proj.", "attn_output.",
	"self_attn.q_norm.", "attn_q_norm.",
	"self_attn.k_norm.", "attn_k_norm.",
	"post_attention_layernorm.", "ffn_norm.",
	"mlp.gate_proj.", "ffn_gate.",
	"mlp.up_proj.", "ffn_up.",
	"mlp.down_proj.", "ffn_down.",
)

func ggufName(name string) string { return ggufNames.Replace(name) }

// dummySet makes up every tensor that is asked for: bfloat16, the same values
// for the same name and shape whatever else is loaded. Rows have about unit
// length, so activations stay in range through any number of layers.
type dummySet struct{ name string }

// fill says how the tensor of this name and shape is made up.
func (s dummySet) fill(name string, want []int) kernels.Fill {
	h := fnv.New64a()
	h.Write([]byte(name))
	// Uniform values in ±√3·deviation have the wanted deviation.
	f := kernels.Fill{State: h.Sum64(), Spread: math.Sqrt(3 / float64(want[len(want)-1]))}
	if strings.HasSuffix(name, "norm.weight") {
		f.Center, f.Spread = 1, 0.1
	}
	return f
}

func (s dummySet) find(name string, want []int) (fileTensor, error) {
	n := 1
	for _, d := range want {
		n *= d
	}
	f := s.fill(name, want)
	data := make([]byte, 0, 2*n)
	for range n {
		f.State += 0x9e3779b97f4a7c15 // splitmix64
		z := f.State
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
		unit := float64(z>>11)/(1<<52) - 1
		v := quant.F32ToBF16(float32(f.Center + f.Spread*unit))
		data = append(data, byte(v), byte(v>>8))
	}
	return fileTensor{file: s.name, name: name, dtype: kernels.BF16, shape: want, data: data}, nil
}

func (s dummySet) extra(map[string]bool) []string { return nil }

func (s dummySet) close() error { return nil }
