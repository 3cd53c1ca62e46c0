package model

import (
	"bytes"
	"os"
	"slices"
	"testing"

	ggufparser "github.com/gpustack/gguf-parser-go"

	"waybill/model/gguf"
)

// TestReaderAgreesWithGGUFParser compares every key and tensor of the default
// model with an independent reader.
func TestReaderAgreesWithGGUFParser(t *testing.T) {
	path := smolPath(t)
	want, err := ggufparser.ParseGGUFFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if len(f.Metadata) != len(want.Header.MetadataKV) {
		t.Errorf("%d keys, want %d", len(f.Metadata), len(want.Header.MetadataKV))
	}
	for _, kv := range want.Header.MetadataKV {
		compareValue(t, kv, f.Metadata[kv.Key])
	}

	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Tensors()) != len(want.TensorInfos) {
		t.Fatalf("%d tensors, want %d", len(f.Tensors()), len(want.TensorInfos))
	}
	for _, info := range want.TensorInfos {
		x, ok := f.Tensor(info.Name)
		var dims []uint64
		for _, d := range slices.Backward(x.Shape) {
			dims = append(dims, uint64(d))
		}
		start := want.TensorDataStartOffset + int64(info.Offset)
		size := int64(info.Bytes())
		if !ok || x.DType.String() != info.Type.String() || !slices.Equal(dims, info.Dimensions) ||
			!bytes.Equal(x.Data, data[start:start+size]) {
			t.Errorf("tensor %s: got %v %s %v, %d bytes, want %s %v, %d bytes at %d",
				info.Name, ok, x.DType, dims, len(x.Data), info.Type, info.Dimensions, size, start)
		}
	}
}

func compareValue(t *testing.T, kv ggufparser.GGUFMetadataKV, v gguf.Value) {
	t.Helper()
	var got any
	var err error
	want := kv.Value
	switch kv.ValueType {
	case ggufparser.GGUFMetadataValueTypeString:
		got, err = v.Str()
	case ggufparser.GGUFMetadataValueTypeBool:
		got, err = v.Bool()
	case ggufparser.GGUFMetadataValueTypeUint32:
		var n int
		n, err = v.Int()
		got = uint32(n)
	case ggufparser.GGUFMetadataValueTypeFloat32:
		var x float64
		x, err = v.Float()
		got = float32(x)
	case ggufparser.GGUFMetadataValueTypeArray:
		a := kv.ValueArray()
		if v.Len() != int(a.Len) {
			t.Errorf("%s: %d elements, want %d", kv.Key, v.Len(), a.Len)
		}
		compareArray(t, kv.Key, a, v)
		return
	default:
		t.Errorf("%s: type %v is not compared", kv.Key, kv.ValueType)
	}
	if err != nil || got != want {
		t.Errorf("%s: got %v, %v, want %v", kv.Key, got, err, want)
	}
}

func compareArray(t *testing.T, key string, a ggufparser.GGUFMetadataKVArrayValue, v gguf.Value) {
	t.Helper()
	texts, err1 := v.Strings()
	numbers, err2 := v.Floats()
	if err1 != nil && err2 != nil {
		t.Errorf("%s: %v, %v", key, err1, err2)
		return
	}
	for i, want := range a.Array {
		equal := false
		switch w := want.(type) {
		case string:
			equal = texts[i] == w
		case float32:
			equal = numbers[i] == w
		case int32:
			equal = numbers[i] == float32(w)
		default:
			t.Fatalf("%s: %T is not compared", key, want)
		}
		if !equal {
			t.Errorf("%s[%d] differs from %v", key, i, want)
			return
		}
	}
}
