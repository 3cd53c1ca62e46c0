package tokenizer

import (
	"slices"
	"testing"
)

// TestHostileGGUFIsRefused is the same for the other format.
func TestHostileGGUFIsRefused(t *testing.T) {
	for name, v := range map[string]GGUFVocab{
		"empty":          {Model: "gpt2"},
		"model":          {Model: "rwkv", Tokens: []string{"a"}},
		"pre":            {Model: "gpt2", Pre: "nobody-knows", Tokens: []string{"a"}},
		"types":          {Model: "gpt2", Tokens: []string{"a"}, Types: []int32{1, 1}},
		"scores":         {Model: "llama", Tokens: []string{"a"}},
		"merge":          {Model: "gpt2", Tokens: []string{"a", "b"}, Merges: []string{"a b"}},
		"merge form":     {Model: "gpt2", Tokens: []string{"a", "b"}, Merges: []string{"a"}},
		"byte":           {Model: "llama", Tokens: []string{"<0xZZ>"}, Types: []int32{ggufByte}, Scores: []float32{0}},
		"bos":            {Model: "gpt2", Tokens: []string{"a"}, BOS: 1, EOS: -1},
		"added too long": {Model: "gpt2", Tokens: []string{string(make([]byte, 513))}, Types: []int32{ggufControl}, BOS: -1, EOS: -1},
	} {
		if _, err := FromGGUF(v); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestGGUFSentenceStyle: a vocabulary with scores merges the best pair first, the leftmost of equals, falls back
// to bytes, and never becomes a control or byte token.
func TestGGUFSentenceStyle(t *testing.T) {
	v := GGUFVocab{
		Model:  "llama",
		Tokens: []string{"<unk>", "<s>", "</s>", "<0xC3>", "<0xA9>", "▁", "a", "b", "c", "ab", "bc", "▁a", "abc", "<", "s", ">", "<s", "▁▁"},
		Types:  []int32{2, 3, 3, 6, 6, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4},
		Scores: []float32{0, 0, 0, 0, 0, -9, -9, -9, -9, -3, -2, -4, -5, -9, -9, -9, -6, 0},
		BOS:    1, EOS: 2, UNK: 0, AddBOS: true, AddSpacePrefix: true,
	}
	tok := must(t)(FromGGUF(v))
	for _, c := range []struct {
		text string
		want []int32
	}{
		{"abc", []int32{1, 11, 10}},        // bc (-2), then ▁a
		{"ab", []int32{1, 5, 9}},           // ab (-3) before ▁a (-4)
		{"é", []int32{1, 5, 3, 4}},         // bytes
		{"<s>a", []int32{1, 5, 16, 15, 6}}, // not control token 1, although <s and > are pieces
		{"a  a", []int32{1, 11, 17, 6}},    // ▁▁ has the best score
		{"ñ", []int32{1, 5, 0}},            // one of its bytes is missing
		{"", []int32{1}},
	} {
		if got := tok.Encode(nil, c.text, EncodeOptions{AddSpecial: true}); !slices.Equal(got, c.want) {
			t.Errorf("%q: got %v, want %v", c.text, got, c.want)
		}
	}
	if got := tok.Encode(nil, "<s>ab", EncodeOptions{ParseSpecial: true}); !slices.Equal(got, []int32{1, 5, 9}) {
		t.Errorf("parsed: %v", got)
	}
	if got := tok.Decode([]int32{1, 11, 10}, true); got != "abc" {
		t.Errorf("decoded %q", got)
	}
}
