package model

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"waybill/model/safetensors"
)

// rawTensor is a tensor of a test's own model file.
type rawTensor struct {
	name, dtype string
	shape       []int
	data        []byte
}

// readTensors returns the tensors of a folder, free of its mapping.
func readTensors(t testing.TB, dir string) []rawTensor {
	t.Helper()
	f, err := safetensors.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []rawTensor
	for _, name := range f.Names() {
		x, _ := f.Tensor(name)
		out = append(out, rawTensor{name, x.DType, x.Shape, bytes.Clone(x.Data)})
	}
	return out
}

// writeFolder writes a model folder of one weight file.
func writeFolder(t testing.TB, config string, tensors []rawTensor) string {
	t.Helper()
	dir := t.TempDir()
	header, body := map[string]any{}, []byte{}
	for _, x := range tensors {
		header[x.name] = map[string]any{"dtype": x.dtype, "shape": x.shape,
			"data_offsets": []int{len(body), len(body) + len(x.data)}}
		body = append(body, x.data...)
	}
	h, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(h)))
	file = append(append(file, h...), body...)
	writeFile(t, dir, "model.safetensors", file)
	writeFile(t, dir, "config.json", []byte(config))
	return dir
}

func writeFile(t testing.TB, dir, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func tinyConfig(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "tiny", name, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// ggufWriter builds a GGUF file.
type ggufWriter struct {
	keys    []string
	values  map[string][]byte // type and value as they are written
	tensors []rawTensor
}

func le(b *bytes.Buffer, v any) { binary.Write(b, binary.LittleEndian, v) }

func leString(b *bytes.Buffer, s string) {
	le(b, uint64(len(s)))
	b.WriteString(s)
}

// set adds or replaces a key: a uint32, float32, string, list of strings or of
// int32, or a type and value that are encoded already.
func (w *ggufWriter) set(key string, v any) {
	var b bytes.Buffer
	switch v := v.(type) {
	case int:
		le(&b, uint32(4))
		le(&b, uint32(v))
	case float64:
		le(&b, uint32(6))
		le(&b, float32(v))
	case string:
		le(&b, uint32(8))
		leString(&b, v)
	case []string:
		le(&b, []uint32{9, 8})
		le(&b, uint64(len(v)))
		for _, s := range v {
			leString(&b, s)
		}
	case []int32:
		le(&b, []uint32{9, 5})
		le(&b, uint64(len(v)))
		le(&b, v)
	case []byte:
		b.Write(v)
	default:
		panic(fmt.Sprintf("BUG: GGUF value %T", v))
	}
	if w.values == nil {
		w.values = map[string][]byte{}
	}
	if w.values[key] == nil {
		w.keys = append(w.keys, key)
	}
	w.values[key] = b.Bytes()
}

func (w *ggufWriter) bytes() []byte {
	var b, body bytes.Buffer
	b.WriteString("GGUF")
	le(&b, uint32(3))
	le(&b, []uint64{uint64(len(w.tensors)), uint64(len(w.keys))})
	for _, key := range w.keys {
		leString(&b, key)
		b.Write(w.values[key])
	}
	for _, x := range w.tensors {
		leString(&b, x.name)
		le(&b, uint32(len(x.shape)))
		for i := range x.shape {
			le(&b, uint64(x.shape[len(x.shape)-1-i]))
		}
		le(&b, map[string]uint32{"F32": 0, "F16": 1, "BF16": 30}[x.dtype])
		le(&b, uint64(body.Len()))
		body.Write(x.data)
		body.Write(make([]byte, -body.Len()&31))
	}
	b.Write(make([]byte, -b.Len()&31))
	b.Write(body.Bytes())
	return b.Bytes()
}

// tinyGGUF converts a tiny folder the way llama.cpp's converter does: its names,
// llama's q and k rows interleaved, the llama3 scaling as a tensor.
func tinyGGUF(t testing.TB, name string) *ggufWriter {
	t.Helper()
	dir := filepath.Join("testdata", "tiny", name)
	c, err := parseHFConfig([]byte(tinyConfig(t, name)))
	if err != nil {
		t.Fatal(err)
	}
	w := &ggufWriter{}
	arch := c.Architecture
	w.set("general.architecture", arch)
	w.set("general.name", "tiny "+name)
	for key, v := range map[string]any{
		"embedding_length": c.HiddenSize, "block_count": c.NumLayers, "feed_forward_length": c.IntermediateSize,
		"attention.head_count": c.NumHeads, "attention.head_count_kv": c.NumKVHeads, "attention.key_length": c.HeadDim,
		"attention.value_length": c.HeadDim, "rope.dimension_count": c.HeadDim, "context_length": c.MaxPositionEmbeddings,
		"attention.layer_norm_rms_epsilon": c.RMSNormEps, "rope.freq_base": c.RopeTheta,
	} {
		w.set(arch+"."+key, v)
	}
	if c.SlidingWindow > 0 {
		w.set(arch+".attention.sliding_window", c.SlidingWindow)
	}
	w.set("tokenizer.ggml.model", "gpt2")
	w.set("tokenizer.ggml.tokens", []string{"a", "b", "<|im_end|>"})
	w.set("tokenizer.ggml.eos_token_id", 2)
	w.set("tokenizer.chat_template", "{{ messages }}")
	for _, x := range readTensors(t, dir) {
		switch {
		case arch == "llama" && strings.HasSuffix(x.name, "q_proj.weight"):
			x.data = interleave(x, c.NumHeads)
		case arch == "llama" && strings.HasSuffix(x.name, "k_proj.weight"):
			x.data = interleave(x, c.NumKVHeads)
		}
		x.name = ggufName(x.name)
		w.tensors = append(w.tensors, x)
	}
	if c.RopeScaling.Type == "llama3" {
		plain := c
		plain.RopeScaling = RopeScaling{}
		var data bytes.Buffer
		for i, f := range plain.invFreq() {
			le(&data, math.Float32bits(f/c.invFreq()[i]))
		}
		w.tensors = append(w.tensors, rawTensor{ropeFreqs, "F32", []int{c.HeadDim / 2}, data.Bytes()})
	}
	return w
}

// interleave is the converter's reshape(heads, 2, dim/2, …).swapaxes(1, 2),
// spelled out: row (head, half, i) goes to (head, i, half).
func interleave(x rawTensor, numHeads int) []byte {
	rows := x.shape[0]
	rowBytes, dim := len(x.data)/rows, rows/numHeads
	out := make([]byte, len(x.data))
	for head := range numHeads {
		for half := range 2 {
			for i := range dim / 2 {
				from, to := head*dim+half*(dim/2)+i, head*dim+i*2+half
				copy(out[to*rowBytes:(to+1)*rowBytes], x.data[from*rowBytes:])
			}
		}
	}
	return out
}
