package tokenizer

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"
)

// GGUFVocab is the tokenizer part of a GGUF file's metadata; comments name the keys after "tokenizer.ggml.".
type GGUFVocab struct {
	Model  string    // model: "gpt2" or "llama"
	Pre    string    // pre
	Tokens []string  // tokens
	Scores []float32 // scores; "llama" only
	Types  []int32   // token_type; may be empty: all normal
	Merges []string  // merges: "left right"; "gpt2" only

	BOS, EOS, UNK int32 // bos_token_id, eos_token_id, unknown_token_id; -1 if absent

	AddBOS, AddEOS bool // add_bos_token, add_eos_token
	AddSpacePrefix bool // add_space_prefix (true if absent); "llama" only
}

// Values of tokenizer.ggml.token_type (llama.h, llama_token_type).
const (
	ggufNormal      = 1
	ggufUnknown     = 2
	ggufControl     = 3
	ggufUserDefined = 4
	ggufUnused      = 5
	ggufByte        = 6
)

// ggufPre is what a value of tokenizer.ggml.pre means.
type ggufPre struct {
	pattern      string
	digits       bool
	nfc          bool
	ignoreMerges bool
}

var (
	preGPT2   = ggufPre{pattern: patternGPT2}
	preSmolLM = ggufPre{pattern: patternGPT2, digits: true}
	preLlama3 = ggufPre{pattern: patternLlama3, ignoreMerges: true}
	preQwen2  = ggufPre{pattern: patternQwen2, nfc: true}
	preQwen35 = ggufPre{pattern: patternQwen35, nfc: true}
)

// ggufPres has the known values of tokenizer.ggml.pre. "default" and an absent value are what converters wrote
// before the key existed; GPT-2's pattern is the common denominator of the models of that time.
var ggufPres = map[string]ggufPre{
	"": preGPT2, "default": preGPT2, "gpt-2": preGPT2, "gpt2": preGPT2, "phi-2": preGPT2,
	"smollm": preSmolLM, "starcoder": preSmolLM, "refact": preSmolLM, "codeshell": preSmolLM,
	"llama-bpe": preLlama3, "llama3": preLlama3, "llama-v3": preLlama3,
	"qwen2": preQwen2, "qwen3": preQwen2, "deepseek-r1-qwen": preQwen2,
	"qwen35": preQwen35, "qwen3.5": preQwen35,
}

// FromGGUF makes a tokenizer from the metadata of a GGUF file. It keeps no reference to v.
func FromGGUF(v GGUFVocab) (*Tokenizer, error) {
	if len(v.Tokens) > maxVocab {
		return nil, fmt.Errorf("tokenizer: %d tokens, limit %d", len(v.Tokens), maxVocab)
	}
	if len(v.Types) != 0 && len(v.Types) != len(v.Tokens) {
		return nil, fmt.Errorf("tokenizer: %d token types for %d tokens", len(v.Types), len(v.Tokens))
	}
	var t *Tokenizer
	var err error
	switch v.Model {
	case "gpt2":
		t, err = ggufByteLevel(v)
	case "llama":
		t, err = ggufSentence(v)
	default:
		return nil, fmt.Errorf("tokenizer: model %q is not supported (only gpt2 and llama)", v.Model)
	}
	if err != nil {
		return nil, err
	}
	if err := t.setEnds(v.BOS, v.EOS); err != nil {
		return nil, err
	}
	if v.AddBOS && t.bos >= 0 {
		t.prefix = []int32{t.bos}
	}
	if v.AddEOS && t.eos >= 0 {
		t.suffix = []int32{t.eos}
	}
	return t, t.setAdded(ggufAdded(t, v))
}

// tokenType returns the type of a token; a file without types has ordinary tokens only.
func (v *GGUFVocab) tokenType(id int) int32 {
	if len(v.Types) == 0 {
		return ggufNormal
	}
	return v.Types[id]
}

// ggufAdded lists the tokens that are found in text as they are written.
func ggufAdded(t *Tokenizer, v GGUFVocab) []addedToken {
	var added []addedToken
	for id, text := range v.Tokens {
		typ := v.tokenType(id)
		if text != "" && (typ == ggufControl || typ == ggufUserDefined || t.IsControl(int32(id))) {
			added = append(added, addedToken{id: int32(id), text: strings.Clone(text)})
		}
	}
	return added
}

// ggufByteLevel builds the tables of model "gpt2": pieces in the byte alphabet, merges by rank.
func ggufByteLevel(v GGUFVocab) (*Tokenizer, error) {
	pre, ok := ggufPres[v.Pre]
	if !ok {
		return nil, fmt.Errorf("tokenizer: pre-tokenizer %q is not supported", v.Pre)
	}
	ids := make(map[string]int32, len(v.Tokens))
	tokens := make([]token, len(v.Tokens))
	for id, piece := range v.Tokens {
		tok := &tokens[id]
		tok.known, tok.text = true, piece
		switch typ := v.tokenType(id); typ {
		case ggufControl, ggufUnknown:
			tok.special, tok.control = true, true
		// Added tokens are written as they are, not in the byte alphabet, and no merge leads to them.
		case ggufUserDefined:
			tok.control = !isBlank(piece)
			tok.hidden = true
		default:
			if text, ok := fromByteChars(piece); ok {
				tok.text = text
			} else {
				tok.hidden = true
			}
		}
		if _, taken := ids[piece]; !taken {
			ids[piece] = int32(id)
		}
	}
	t, err := build(tokens)
	if err != nil {
		return nil, err
	}
	merges := make([]mergeRule, len(v.Merges))
	for i, m := range v.Merges {
		if merges[i], err = parseMerge(m); err != nil {
			return nil, err
		}
	}
	if err := t.setMerges(ids, merges); err != nil {
		return nil, err
	}
	t.setAlphabet(ids)
	rules := mustPattern(pre.pattern)
	rules.digits = pre.digits
	t.rules, t.nfc, t.ignoreMerges = &rules, pre.nfc, pre.ignoreMerges
	return t, nil
}

// isBlank reports whether s is white space only: such added tokens abbreviate text and control nothing.
func isBlank(s string) bool {
	return strings.TrimFunc(s, func(r rune) bool { return unicode.IsSpace(r) || r == '▁' }) == ""
}

// setAlphabet finds the ids of the 256 single bytes in a byte-level vocabulary.
func (t *Tokenizer) setAlphabet(ids map[string]int32) {
	for b := range 256 {
		if id, ok := ids[string(byteChars[b])]; ok && !t.IsControl(id) {
			t.byteIDs[b] = id
		}
	}
}

// mergeRule is a merge as files write it: two pieces.
type mergeRule struct{ left, right string }

// parseMerge reads "left right". Neither side is empty, so a first space belongs to left.
func parseMerge(s string) (mergeRule, error) {
	if len(s) >= 3 {
		if i := strings.IndexByte(s[1:], ' '); i >= 0 && i+2 < len(s) {
			return mergeRule{s[:i+1], s[i+2:]}, nil
		}
	}
	return mergeRule{}, fmt.Errorf("tokenizer: merge %.100q is not two pieces with a space between", s)
}

// setMerges fills the pair table; the rank of a merge is its index.
func (t *Tokenizer) setMerges(ids map[string]int32, merges []mergeRule) error {
	if len(merges) >= math.MaxUint32 {
		return fmt.Errorf("tokenizer: %d merges are too many", len(merges))
	}
	t.pairs = newPairTable(len(merges))
	for rank, m := range merges {
		left, ok1 := ids[m.left]
		right, ok2 := ids[m.right]
		both, ok3 := ids[m.left+m.right]
		if !ok1 || !ok2 || !ok3 {
			return fmt.Errorf("tokenizer: merge %d (%.100q, %.100q) names a piece that is not in the vocabulary",
				rank, m.left, m.right)
		}
		// Text must not merge into a control token, whatever the file says.
		if !t.IsControl(both) {
			t.pairs.add(left, right, uint32(rank), both)
		}
	}
	return nil
}

// maxScoredBytes is the length up to which a SentencePiece piece is given merges. The longest trained pieces
// have 48 characters; longer ones are added tokens. It keeps a hostile file from costing quadratic time.
const maxScoredBytes = 512

// ggufSentence builds the tables of model "llama": pieces with ▁ and scores, bytes as <0x0A>. User-defined tokens
// are pieces as well: SentencePiece keeps markup such as <table> there, which is text.
func ggufSentence(v GGUFVocab) (*Tokenizer, error) {
	if len(v.Scores) != len(v.Tokens) {
		return nil, fmt.Errorf("tokenizer: %d scores for %d tokens", len(v.Scores), len(v.Tokens))
	}
	tokens := make([]token, len(v.Tokens))
	var bytes [256]int32
	for i := range bytes {
		bytes[i] = -1
	}
	for id, piece := range v.Tokens {
		tok := &tokens[id]
		tok.known, tok.text = true, strings.ReplaceAll(piece, "▁", " ")
		switch v.tokenType(id) {
		case ggufControl, ggufUnknown:
			tok.text, tok.special, tok.control = piece, true, true
		case ggufByte:
			b, ok := bytePiece(piece)
			if !ok {
				return nil, fmt.Errorf("tokenizer: byte token %d is %.20q, not like <0x0A>", id, piece)
			}
			tok.text, tok.bytes = string([]byte{b}), true
			bytes[b] = int32(id)
		case ggufUnused:
			tok.hidden = true
		}
	}
	t, err := build(tokens)
	if err != nil {
		return nil, err
	}
	t.byteIDs, t.fuseUnk = bytes, true
	if v.UNK >= 0 && t.has(v.UNK, flagKnown) {
		t.unk = v.UNK
	}
	t.sentence = &sentenceRules{}
	if v.AddSpacePrefix {
		t.sentence.prefix, t.sentence.stripFirst = prefixAlways, true
	}
	t.sentence.cut = t.chooseCut(t.scoredMerges(v.Scores))
	return t, nil
}

// scoredMerges fills the pair table for a vocabulary with scores: any two pieces whose text together is a piece
// merge, the highest score first. It returns the ids that merges give.
func (t *Tokenizer) scoredMerges(scores []float32) (merged []int32) {
	type pair struct{ left, right, both int32 }
	var pairs []pair
	for text, both := range t.pieces {
		if len(text) > maxScoredBytes {
			continue
		}
		for i := range text {
			left, ok1 := t.pieces[text[:i]]
			right, ok2 := t.pieces[text[i:]]
			if i > 0 && ok1 && ok2 {
				pairs = append(pairs, pair{left, right, both})
			}
		}
	}
	score := func(id int32) float32 {
		if s := scores[id]; s == s {
			return s
		}
		return float32(math.Inf(-1)) // not a number
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		switch x, y := score(a.both), score(b.both); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return int(a.both) - int(b.both)
	})
	t.pairs = newPairTable(len(pairs))
	rank := uint32(0)
	for i, p := range pairs {
		// The table's ranks are places in the order of scores, as an HF conversion would number its merges.
		// Equal scores share a rank: of those the leftmost pair merges first.
		if i > 0 && score(p.both) != score(pairs[i-1].both) {
			rank++
		}
		t.pairs.add(p.left, p.right, rank, p.both)
		merged = append(merged, p.both)
	}
	return merged
}
