package gguf

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"waybill/kernels"
)

// builder writes GGUF bytes by hand, right or wrong.
type builder struct{ bytes.Buffer }

func (b *builder) u32(v uint32) *builder { binary.Write(b, binary.LittleEndian, v); return b }
func (b *builder) u64(v uint64) *builder { binary.Write(b, binary.LittleEndian, v); return b }
func (b *builder) str(s string) *builder { b.u64(uint64(len(s))); b.WriteString(s); return b }
func (b *builder) pad(n int) *builder {
	for b.Len()%n != 0 {
		b.WriteByte(0)
	}
	return b
}

func head(tensors, kv uint64) *builder {
	b := &builder{}
	b.WriteString("GGUF")
	return b.u32(3).u64(tensors).u64(kv)
}

// good is a file with one value of every type and two tensors.
func good() []byte {
	b := head(2, 15)
	b.str("u8").u32(0).WriteByte(200)
	b.str("i8").u32(1).WriteByte(0xff)
	b.str("u16").u32(2).Write([]byte{1, 2})
	b.str("i16").u32(3).Write([]byte{0xfe, 0xff})
	b.str("u32").u32(4).u32(7)
	b.str("i32").u32(5).u32(math.MaxUint32)
	b.str("f32").u32(6).u32(math.Float32bits(1.5))
	b.str("bool").u32(7).WriteByte(1)
	b.str("str").u32(8).str("hello")
	b.str("u64").u32(10).u64(1 << 40)
	b.str("i64").u32(11).u64(math.MaxUint64)
	b.str("f64").u32(12).u64(math.Float64bits(-2.5))
	b.str("strs").u32(9).u32(8).u64(3).str("a").str("").str("ccc")
	b.str("ints").u32(9).u32(5).u64(2).u32(1).u32(math.MaxUint32)
	b.str("nested").u32(9).u32(9).u64(2).u32(0).u64(2).Write([]byte{1, 2})
	b.u32(8).u64(1).str("x")
	b.str("m").u32(2).u64(32).u64(2).u32(3).u64(0)    // Q4_1 [2, 32]: 40 bytes
	b.str("v").u32(1).u64(5).u32(0).u64(64)           // F32 [5]
	b.pad(32).Write(bytes.Repeat([]byte{9}, 40))      // m
	b.Write(make([]byte, 24))                         // up to 64
	b.Write(bytes.Repeat([]byte{0, 0, 128, 0x3f}, 5)) // v: ones
	return b.Bytes()
}

func TestParseReadsEveryValueTypeAndTensors(t *testing.T) {
	f, err := Parse("t", good())
	if err != nil {
		t.Fatal(err)
	}
	ints := map[string]int{"u8": 200, "i8": -1, "u16": 0x201, "i16": -2, "u32": 7, "i32": -1, "u64": 1 << 40, "i64": -1}
	for key, want := range ints {
		if got, err := f.Metadata[key].Int(); err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", key, got, err, want)
		}
	}
	for key, want := range map[string]float64{"f32": 1.5, "f64": -2.5, "u8": 200} {
		if got, err := f.Metadata[key].Float(); err != nil || got != want {
			t.Errorf("%s: got %g, %v, want %g", key, got, err, want)
		}
	}
	if got, err := f.Metadata["bool"].Bool(); err != nil || !got {
		t.Errorf("bool: got %v, %v", got, err)
	}
	if got, err := f.Metadata["str"].Str(); err != nil || got != "hello" {
		t.Errorf("str: got %q, %v", got, err)
	}
	if got, err := f.Metadata["strs"].Strings(); err != nil || !reflect.DeepEqual(got, []string{"a", "", "ccc"}) {
		t.Errorf("strs: got %q, %v", got, err)
	}
	if got, err := f.Metadata["ints"].Int32s(); err != nil || !reflect.DeepEqual(got, []int32{1, -1}) {
		t.Errorf("ints: got %v, %v", got, err)
	}
	if n := f.Metadata["nested"].Len(); n != 2 {
		t.Errorf("nested: got %d elements, want 2", n)
	}
	m, _ := f.Tensor("m")
	if m.DType != kernels.Q4_1 || !reflect.DeepEqual(m.Shape, []int{2, 32}) || !bytes.Equal(m.Data, bytes.Repeat([]byte{9}, 40)) {
		t.Errorf("m: got %+v", m)
	}
	v, _ := f.Tensor("v")
	if v.DType != kernels.F32 || !reflect.DeepEqual(v.Shape, []int{5}) || len(v.Data) != 20 || v.Data[3] != 0x3f {
		t.Errorf("v: got %+v", v)
	}
	if _, ok := f.Tensor("none"); ok {
		t.Error("a tensor that is not there was found")
	}
}

func TestWrongTypeIsAnErrorNotAValue(t *testing.T) {
	f, err := Parse("t", good())
	if err != nil {
		t.Fatal(err)
	}
	for key := range f.Metadata {
		v := f.Metadata[key]
		// Every accessor on every type: errors are fine, panics are not.
		v.Int()
		v.Float()
		v.Bool()
		v.Str()
		v.Strings()
		v.Floats()
		v.Int32s()
	}
	if _, err := f.Metadata.Int("str", 0); err == nil || !strings.Contains(err.Error(), "str: string, expected an integer") {
		t.Errorf("string as integer: %v", err)
	}
	if n, err := f.Metadata.Int("absent", 42); n != 42 || err != nil {
		t.Errorf("absent key: got %d, %v", n, err)
	}
}

// hostile files and the words that their errors must hold.
func hostile() map[string]struct {
	data []byte
	want string
} {
	type c = struct {
		data []byte
		want string
	}
	tensor := func(f func(b *builder)) []byte {
		b := head(1, 0)
		f(b)
		b.pad(32)
		b.Write(make([]byte, 128))
		return b.Bytes()
	}
	deep := head(0, 1).str("k").u32(9)
	for range 1000 {
		deep.u32(9).u64(1)
	}
	overlap := head(2, 0)
	overlap.str("a").u32(1).u64(16).u32(0).u64(0)
	overlap.str("b").u32(1).u64(16).u32(0).u64(32).pad(32)
	overlap.Write(make([]byte, 128))
	twice := head(2, 0)
	twice.str("a").u32(1).u64(8).u32(0).u64(0).str("a").u32(1).u64(8).u32(0).u64(32).pad(32)
	twice.Write(make([]byte, 128))
	kvTwice := head(0, 2).str("k").u32(4).u32(1).str("k").u32(4).u32(1)
	align := func(n uint32) []byte { return head(0, 1).str("general.alignment").u32(4).u32(n).Bytes() }
	return map[string]c{
		"empty":             {nil, "4 bytes expected"},
		"magic":             {[]byte("GGML\x03\x00\x00\x00"), "not a GGUF file"},
		"version 1":         {append([]byte("GGUF"), 1, 0, 0, 0), "version 1, expected 2 or 3"},
		"big endian":        {append([]byte("GGUF"), 0, 0, 0, 3), "big-endian"},
		"2^60 tensors":      {head(1<<60, 0).Bytes(), "tensor count 1152921504606846976 is too large"},
		"2^60 keys":         {head(0, 1<<60).Bytes(), "metadata count"},
		"2^50 string":       {head(0, 1).str("k").u32(8).u64(1 << 50).u64(0).Bytes(), "bytes expected"},
		"2^64-1 string":     {head(0, 1).str("k").u32(8).u64(math.MaxUint64).u64(0).Bytes(), "bytes expected"},
		"2^40 array":        {head(0, 1).str("k").u32(9).u32(0).u64(1 << 40).Bytes(), "array length"},
		"2^61 u64s":         {head(0, 1).str("k").u32(9).u32(10).u64(1 << 61).Bytes(), "array length"},
		"deep arrays":       {deep.Bytes(), "nested deeper"},
		"unknown type":      {head(0, 1).str("k").u32(99).u64(0).Bytes(), "unknown value type 99"},
		"unknown element":   {head(0, 1).str("k").u32(9).u32(13).u64(0).Bytes(), "unknown element type 13"},
		"key twice":         {kvTwice.Bytes(), `key "k" occurs twice`},
		"long key":          {head(0, 1).u64(1 << 20).u64(0).u64(0).Bytes(), "at most"},
		"alignment 0":       {align(0), "general.alignment is 0"},
		"alignment 24":      {align(24), "general.alignment is 24"},
		"alignment 2^31":    {align(1 << 31), "general.alignment is"},
		"0 dims":            {tensor(func(b *builder) { b.str("a").u32(0).u64(0).u32(0).u64(0) }), "0 dimensions, expected 1 to 4"},
		"5 dims":            {tensor(func(b *builder) { b.str("a").u32(5).u64(1).u64(1).u64(1).u64(1).u64(1).u32(0).u64(0) }), "5 dimensions"},
		"dim 0":             {tensor(func(b *builder) { b.str("a").u32(1).u64(0).u32(0).u64(0) }), "dimension 0 is 0"},
		"dim 2^62":          {tensor(func(b *builder) { b.str("a").u32(1).u64(1 << 62).u32(0).u64(0) }), "dimension 0 is"},
		"dims overflow":     {tensor(func(b *builder) { b.str("a").u32(4).u64(128).u64(128).u64(128).u64(128).u32(0).u64(0) }), "bytes at offset 0"},
		"offset 2^40":       {tensor(func(b *builder) { b.str("a").u32(1).u64(4).u32(0).u64(1 << 40) }), "offset 1099511627776"},
		"offset 2^64-32":    {tensor(func(b *builder) { b.str("a").u32(1).u64(4).u32(0).u64(math.MaxUint64 - 31) }), "data section"},
		"offset past end":   {tensor(func(b *builder) { b.str("a").u32(1).u64(32).u32(0).u64(32) }), "128 bytes at offset 32"},
		"offset unaligned":  {tensor(func(b *builder) { b.str("a").u32(1).u64(4).u32(0).u64(8) }), "multiple of the alignment"},
		"type 20":           {tensor(func(b *builder) { b.str("a").u32(1).u64(4).u32(20).u64(0) }), "type IQ4_NL is not supported, expected one of F32"},
		"type 4":            {tensor(func(b *builder) { b.str("a").u32(1).u64(4).u32(4).u64(0) }), "type number 4"},
		"row no block":      {tensor(func(b *builder) { b.str("a").u32(1).u64(33).u32(2).u64(0) }), "multiple of Q4_0's block of 32"},
		"long tensor name":  {tensor(func(b *builder) { b.str(strings.Repeat("n", 300)).u32(1).u64(4).u32(0).u64(0) }), "at most 256"},
		"overlap":           {overlap.Bytes(), `"a" and "b" overlap`},
		"tensor twice":      {twice.Bytes(), `tensor "a" occurs twice`},
		"no data section":   {head(1, 0).str("a").u32(1).u64(4).u32(0).u64(0).Bytes(), "tensor data starts at"},
		"cut in the header": {good()[:230], "expected at byte"},
		"cut in the data":   {good()[:len(good())-1], `tensor "v"`},
	}
}

func TestHostileFilesGetAnError(t *testing.T) {
	for name, c := range hostile() {
		_, err := Parse("h.gguf", c.data)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "gguf: h.gguf: ") {
			t.Errorf("%s: got %v, want an error with %q", name, err, c.want)
		}
	}
}

func TestEveryPrefixOfAGoodFileIsAnError(t *testing.T) {
	data := good()
	for n := range data {
		if _, err := Parse("t", data[:n:n]); err == nil {
			t.Errorf("the first %d of %d bytes were accepted", n, len(data))
		}
	}
}

func TestMemoryIsBoundedByFileSize(t *testing.T) {
	// One megabyte of the densest nonsense: empty strings, eight bytes each.
	b := head(0, 1).str("tokenizer.ggml.tokens").u32(9).u32(8).u64(1 << 17)
	b.Write(make([]byte, 8<<17))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f, err := Parse("t", b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Metadata["tokenizer.ggml.tokens"].Strings(); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	// A copy of the section, its string, and 16 bytes for each 8-byte string.
	if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(5*b.Len()); got > limit {
		t.Errorf("parsing %d bytes allocated %d, want at most %d", b.Len(), got, limit)
	}
}

func TestOpenMapsAndCloseKeepsMetadata(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, good(), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatalf("second Close: %v", err)
	}
	if got, err := f.Metadata["strs"].Strings(); err != nil || len(got) != 3 {
		t.Errorf("after Close: got %q, %v", got, err)
	}
	if m, _ := f.Tensor("m"); m.Data != nil {
		t.Error("after Close a tensor still refers to the mapping")
	}
	for _, bad := range []string{filepath.Join(t.TempDir(), "none"), t.TempDir(), os.DevNull} {
		if _, err := Open(bad); err == nil {
			t.Errorf("Open(%s): no error", bad)
		}
	}
}

func vocabFile(extra func(b *builder) int) []byte {
	body := &builder{}
	n := extra(body)
	b := head(0, uint64(2+n))
	b.str("tokenizer.ggml.model").u32(8).str("gpt2")
	b.str("tokenizer.ggml.tokens").u32(9).u32(8).u64(3).str("a").str("b").str("<|im_end|>")
	b.Write(body.Bytes())
	return b.Bytes()
}

func TestVocabReadsIDsFlagsAndEnds(t *testing.T) {
	f, err := Parse("t", vocabFile(func(b *builder) int {
		b.str("tokenizer.ggml.token_type").u32(9).u32(5).u64(3).u32(1).u32(3).u32(3)
		b.str("tokenizer.ggml.eos_token_id").u32(4).u32(1)
		b.str("tokenizer.ggml.bos_token_id").u32(4).u32(math.MaxUint32)
		b.str("tokenizer.ggml.add_bos_token").u32(7).WriteByte(1)
		return 4
	}))
	if err != nil {
		t.Fatal(err)
	}
	v, err := f.Metadata.Vocab()
	if err != nil {
		t.Fatal(err)
	}
	if v.BOS != -1 || v.EOS != 1 || v.UNK != -1 || !v.AddBOS || v.AddEOS || v.AddSpacePrefix {
		t.Errorf("got %+v", v)
	}
	if ends, err := f.Metadata.EndIDs(&v); err != nil || !reflect.DeepEqual(ends, []int32{1, 2}) {
		t.Errorf("ends: got %v, %v, want eos 1 and <|im_end|> 2", ends, err)
	}
}

func TestVocabRefusesListsThatDisagree(t *testing.T) {
	cases := map[string]func(b *builder) int{
		"token_type has 1 entries, expected 3": func(b *builder) int {
			b.str("tokenizer.ggml.token_type").u32(9).u32(5).u64(1).u32(1)
			return 1
		},
		"scores has 1 entries, expected 3": func(b *builder) int {
			b.str("tokenizer.ggml.scores").u32(9).u32(6).u64(1).u32(1)
			return 1
		},
		"eos_token_id is 3, expected 0 to 2": func(b *builder) int {
			b.str("tokenizer.ggml.eos_token_id").u32(4).u32(3)
			return 1
		},
		"merges: uint32, expected an array of strings": func(b *builder) int {
			b.str("tokenizer.ggml.merges").u32(4).u32(3)
			return 1
		},
	}
	for want, extra := range cases {
		f, err := Parse("t", vocabFile(extra))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Metadata.Vocab(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(good())
	for _, c := range hostile() {
		f.Add(c.data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse("f", data)
		if err != nil {
			return
		}
		total := 0
		for _, tensor := range file.Tensors() {
			total += len(tensor.Data)
		}
		if total > len(data) {
			t.Fatalf("tensors hold %d bytes, the file has %d", total, len(data))
		}
		for _, v := range file.Metadata {
			v.Int()
			v.Float()
			v.Bool()
			v.Str()
			v.Strings()
			v.Floats()
			v.Int32s()
		}
		if v, err := file.Metadata.Vocab(); err == nil {
			file.Metadata.EndIDs(&v)
		}
	})
}
