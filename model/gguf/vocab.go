package gguf

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Vocab holds the tokenizer.ggml.* keys, the input of a tokenizer. It has the
// fields of tokenizer.GGUFVocab, so that one converts to the other.
type Vocab struct {
	// Model is "gpt2" for byte-level BPE or "llama" for SentencePiece.
	Model string
	// Pre names the pre-tokenizer of a BPE model, such as "smollm" or "qwen2".
	Pre string
	// Tokens holds the text of each id.
	Tokens []string
	// Scores holds SentencePiece's scores, or nothing.
	Scores []float32
	// Types holds each token's type (1 normal, 2 unknown, 3 control, 4 user
	// defined, 5 unused, 6 byte), or nothing.
	Types []int32
	// Merges holds the BPE merges "a b" by rank, or nothing.
	Merges []string
	// BOS, EOS and UNK are ids, -1 where the file names none.
	BOS, EOS, UNK int32
	// AddBOS and AddEOS tell whether a plain text is wrapped in them.
	AddBOS, AddEOS bool
	// AddSpacePrefix tells whether a SentencePiece text gets a leading space.
	AddSpacePrefix bool
}

// tokenTypeControl is the type of a token that never stands for text.
const tokenTypeControl = 3

// endTexts are control tokens that end a turn whatever the file's eos key says.
// Converters differ in which of a model's several ends they write there: Llama 3
// files exist with <|end_of_text|> as the only one although every chat turn ends
// with <|eot_id|>.
var endTexts = map[string]bool{
	"<|eot_id|>": true, "<|eom_id|>": true, "<|end_of_text|>": true, "<|im_end|>": true, "<|endoftext|>": true,
	"<|end|>": true, "<end_of_turn>": true, "<EOT>": true, "</s>": true,
}

// Vocab reads the tokenizer's keys and checks that the lists agree in length.
func (m Metadata) Vocab() (Vocab, error) {
	v, err := m.vocab()
	if err != nil {
		return Vocab{}, fmt.Errorf("gguf: tokenizer: %w", err)
	}
	return v, nil
}

func (m Metadata) vocab() (v Vocab, err error) {
	const prefix = "tokenizer.ggml."
	if v.Model, err = m.Str(prefix+"model", ""); err != nil {
		return v, err
	}
	if v.Model == "" {
		return v, fmt.Errorf("%smodel is missing", prefix)
	}
	if v.Pre, err = m.Str(prefix+"pre", ""); err != nil {
		return v, err
	}
	if v.Tokens, err = array(m, prefix+"tokens", Value.Strings); err != nil {
		return v, err
	}
	if v.Scores, err = array(m, prefix+"scores", Value.Floats); err != nil {
		return v, err
	}
	if v.Types, err = array(m, prefix+"token_type", Value.Int32s); err != nil {
		return v, err
	}
	if v.Merges, err = array(m, prefix+"merges", Value.Strings); err != nil {
		return v, err
	}
	n := len(v.Tokens)
	if n == 0 {
		return v, fmt.Errorf("%stokens is missing or empty", prefix)
	}
	if s := len(v.Scores); s != 0 && s != n {
		return v, fmt.Errorf("%sscores has %d entries, expected %d", prefix, s, n)
	}
	if t := len(v.Types); t != 0 && t != n {
		return v, fmt.Errorf("%stoken_type has %d entries, expected %d", prefix, t, n)
	}
	if err = m.specials(prefix, &v); err != nil {
		return v, err
	}
	return v, nil
}

// specials reads the ids and flags; defaults are llama.cpp's.
func (m Metadata) specials(prefix string, v *Vocab) (err error) {
	ids := []struct {
		key string
		dst *int32
	}{{"bos_token_id", &v.BOS}, {"eos_token_id", &v.EOS}, {"unknown_token_id", &v.UNK}}
	for _, id := range ids {
		if *id.dst, err = m.tokenID(prefix+id.key, len(v.Tokens)); err != nil {
			return err
		}
	}
	sentencePiece := v.Model == "llama"
	llama3 := v.Model == "gpt2" && (v.Pre == "llama-bpe" || strings.HasPrefix(v.Pre, "llama3") || strings.HasPrefix(v.Pre, "llama-v3"))
	if v.AddBOS, err = m.Bool(prefix+"add_bos_token", sentencePiece || llama3); err != nil {
		return err
	}
	if v.AddEOS, err = m.Bool(prefix+"add_eos_token", false); err != nil {
		return err
	}
	if v.AddSpacePrefix, err = m.Bool(prefix+"add_space_prefix", sentencePiece); err != nil {
		return err
	}
	return nil
}

// EndIDs returns the ids of v that end a generation: the file's end of text
// first, then its ends of turn and of message, then what a control token's text
// tells.
func (m Metadata) EndIDs(v *Vocab) ([]int32, error) {
	var ends []int32
	add := func(id int32) {
		if id >= 0 && !slices.Contains(ends, id) {
			ends = append(ends, id)
		}
	}
	add(v.EOS)
	for _, key := range []string{"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"} {
		id, err := m.tokenID(key, len(v.Tokens))
		if err != nil {
			return nil, fmt.Errorf("gguf: tokenizer: %w", err)
		}
		add(id)
	}
	for id, t := range v.Types {
		if t == tokenTypeControl && endTexts[v.Tokens[id]] {
			add(int32(id))
		}
	}
	return ends, nil
}

// tokenID returns the id under key, -1 if absent.
func (m Metadata) tokenID(key string, vocabSize int) (int32, error) {
	id, err := m.Int(key, -1)
	if err != nil {
		return 0, err
	}
	// Writers store "none" as -1 or as 2^32 - 1.
	if id == -1 || id == math.MaxUint32 {
		return -1, nil
	}
	if id < 0 || id >= vocabSize {
		return 0, fmt.Errorf("%s is %d, expected 0 to %d", key, id, vocabSize-1)
	}
	return int32(id), nil
}

// Int returns the integer under key, or absent if there is none.
func (m Metadata) Int(key string, absent int) (int, error) { return scalar(m, key, absent, Value.Int) }

// Float returns the number under key, or absent if there is none.
func (m Metadata) Float(key string, absent float64) (float64, error) {
	return scalar(m, key, absent, Value.Float)
}

// Bool returns the boolean under key, or absent if there is none.
func (m Metadata) Bool(key string, absent bool) (bool, error) {
	return scalar(m, key, absent, Value.Bool)
}

// Str returns the string under key, or absent if there is none.
func (m Metadata) Str(key string, absent string) (string, error) {
	return scalar(m, key, absent, Value.Str)
}

func scalar[T any](m Metadata, key string, absent T, get func(Value) (T, error)) (T, error) {
	v, ok := m[key]
	if !ok {
		return absent, nil
	}
	t, err := get(v)
	if err != nil {
		return absent, fmt.Errorf("%s: %w", key, err)
	}
	return t, nil
}

func array[T any](m Metadata, key string, get func(Value) ([]T, error)) ([]T, error) {
	return scalar(m, key, nil, get)
}
