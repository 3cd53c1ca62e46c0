package safetensors

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// file joins a header and a data section.
func file(header string, body int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	for i := range body {
		b = append(b, byte(i))
	}
	return b
}

const goodHeader = `{"__metadata__":{"format":"pt"},` +
	`"b":{"dtype":"F32","shape":[2,2],"data_offsets":[4,20]},` +
	`"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},` +
	`"empty":{"dtype":"F16","shape":[0,9],"data_offsets":[20,20]},` +
	`"ids":{"dtype":"I64","shape":[],"data_offsets":[20,28]}}  `

func TestParseReadsShapesAndData(t *testing.T) {
	f, err := Parse("t", file(goodHeader, 28))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, x := range f.Tensors() {
		got = append(got, fmt.Sprint(x.Name, x.DType, x.Shape, x.Data))
	}
	want := []string{"aBF16[2][0 1 2 3]", "bF32[2 2][4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19]",
		"emptyF16[0 9][]", "idsI64[][20 21 22 23 24 25 26 27]"}
	for i := range want {
		if i >= len(got) || strings.ReplaceAll(got[i], " [", "[") != want[i] {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}

func one(entry string) string { return `{"a":` + entry + `}` }

// hostile files and the words that their errors must hold.
var hostile = map[string]struct {
	data []byte
	want string
}{
	"empty":            {nil, "expected at least 8"},
	"header length":    {[]byte("\xff\xff\xff\xff\xff\xff\xff\xff{}"), "header of 18446744073709551615 bytes"},
	"cut header":       {file(goodHeader, 28)[:50], "header of"},
	"no object":        {file(`[1]`, 0), "does not start with {"},
	"leading space":    {file(` {}`, 0), "does not start with {"},
	"bad json":         {file(`{"a":`, 0), "header"},
	"number key":       {file(`{1:2}`, 0), "header"},
	"two objects":      {file(`{}{}`, 0), "after the closing brace"},
	"twice":            {file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 1), `"a" occurs twice`},
	"metadata":         {file(`{"__metadata__":{"a":[1]}}`, 0), "__metadata__"},
	"type":             {file(one(`{"dtype":"F4","shape":[1],"data_offsets":[0,4]}`), 4), `unknown type "F4"`},
	"past the end":     {file(one(`{"dtype":"F32","shape":[2],"data_offsets":[0,8]}`), 4), "data section has 4 bytes"},
	"backwards":        {file(one(`{"dtype":"F32","shape":[1],"data_offsets":[4,0]}`), 4), "from byte 4 to 0"},
	"one offset":       {file(one(`{"dtype":"F32","shape":[1],"data_offsets":[4]}`), 4), "no pair"},
	"null offset":      {file(one(`{"dtype":"F32","shape":[1],"data_offsets":[null,4]}`), 4), "no pair"},
	"negative":         {file(one(`{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}`), 4), "header"},
	"size":             {file(one(`{"dtype":"F32","shape":[3],"data_offsets":[0,4]}`), 4), "takes 12 bytes, data_offsets give 4"},
	"shape overflow":   {file(one(`{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,4]}`), 4), "too large"},
	"wraps to 4":       {file(one(`{"dtype":"F32","shape":[9223372036854775809,2],"data_offsets":[0,4]}`), 4), "too large"},
	"nine dims":        {file(one(`{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}`), 1), "9 dimensions"},
	"overlap":          {file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 3), `"b" starts at byte 1 of the data section, expected 2`},
	"hole":             {file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), "starts at byte 1"},
	"trailing":         {file(one(`{"dtype":"U8","shape":[1],"data_offsets":[0,1]}`), 2), "data section has 2 bytes, the tensors take 1"},
	"deeply nested":    {file(strings.Repeat(`{"a":`, 20000), 0), "header"},
	"nested in a list": {file(`{"a":`+strings.Repeat(`[`, 20000), 0), "header"},
}

func TestHostileFilesGetAnError(t *testing.T) {
	for name, c := range hostile {
		_, err := Parse("h", c.data)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "safetensors: h: ") {
			t.Errorf("%s: got %v, want an error with %q", name, err, c.want)
		}
	}
}

func TestEveryPrefixOfAGoodFileIsAnError(t *testing.T) {
	data := file(goodHeader, 28)
	for n := range data {
		if _, err := Parse("t", data[:n:n]); err == nil {
			t.Errorf("the first %d of %d bytes were accepted", n, len(data))
		}
	}
}

func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func shard(tensor string) string {
	return string(file(fmt.Sprintf(`{%q:{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}`, tensor), 3))
}

func TestFolderJoinsShards(t *testing.T) {
	d, err := OpenFolder(folder(t, map[string]string{
		indexName:        `{"metadata":{"total_size":6},"weight_map":{"a":"1.safetensors","b":"2.safetensors"}}`,
		"1.safetensors":  shard("a"),
		"2.safetensors":  shard("b"),
		"99.safetensors": "not named by the index",
	}))
	if err != nil {
		t.Fatal(err)
	}
	if got := d.Names(); !reflect.DeepEqual(got, []string{"a", "b"}) {
		t.Errorf("names: got %v", got)
	}
	b, ok := d.Tensor("b")
	if !ok || filepath.Base(b.File) != "2.safetensors" || !bytes.Equal(b.Data, []byte{0, 1, 2}) {
		t.Errorf("b: got %+v", b)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, ok := d.Tensor("b"); ok {
		t.Error("a tensor is left after Close")
	}
}

func TestFolderErrors(t *testing.T) {
	index := func(m string) string { return `{"weight_map":` + m + `}` }
	cases := map[string]struct {
		files map[string]string
		want  string
	}{
		"nothing":       {nil, "has neither model.safetensors nor"},
		"bad single":    {map[string]string{singleName: "x"}, "expected at least 8"},
		"no map":        {map[string]string{indexName: `{}`}, "weight_map is missing"},
		"map type":      {map[string]string{indexName: index(`{"a":1}`)}, "cannot unmarshal"},
		"missing shard": {map[string]string{indexName: index(`{"a":"1.safetensors"}`)}, "1.safetensors"},
		"wrong shard": {map[string]string{indexName: index(`{"a":"1.safetensors","b":"1.safetensors"}`),
			"1.safetensors": shard("a")}, `tensor "b" is not in 1.safetensors`},
		"in two": {map[string]string{indexName: index(`{"a":"1.safetensors","b":"2.safetensors"}`),
			"1.safetensors": shard("a"), "2.safetensors": shard("a")}, `"a" is in both`},
		"parent":    {map[string]string{indexName: index(`{"a":"../1.safetensors"}`)}, "not the plain name"},
		"absolute":  {map[string]string{indexName: index(`{"a":"/1.safetensors"}`)}, "not the plain name"},
		"backslash": {map[string]string{indexName: index(`{"a":"..\\1.safetensors"}`)}, "not the plain name"},
		"NUL":       {map[string]string{indexName: index(`{"a":"1\u0000.safetensors"}`)}, "not the plain name"},
		"device":    {map[string]string{indexName: index(`{"a":"passwd"}`)}, "not the plain name"},
	}
	for name, c := range cases {
		d, err := OpenFolder(folder(t, c.files))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, %v, want an error with %q", name, d, err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(file(goodHeader, 28))
	for _, c := range hostile {
		f.Add(c.data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse("f", data)
		if err != nil {
			return
		}
		total := 0
		for _, x := range file.Tensors() {
			total += len(x.Data)
		}
		if total > len(data) {
			t.Fatalf("tensors hold %d bytes, the file has %d", total, len(data))
		}
	})
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"weight_map":{"a":"1.safetensors","b":"../2.safetensors"}}`))
	f.Add([]byte(`{"metadata":{"total_size":6},"weight_map":{"a":"model-00001-of-00002.safetensors"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		names, _, err := parseIndex(data)
		if err != nil {
			return
		}
		for _, name := range names {
			if filepath.Join("dir", name) != "dir/"+name || filepath.Base(name) != name {
				t.Fatalf("shard %q escapes its folder", name)
			}
		}
	})
}
