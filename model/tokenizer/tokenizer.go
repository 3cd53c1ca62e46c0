// Package tokenizer turns text into token ids and back, for byte-level BPE vocabularies (GPT-2, Llama 3,
// Qwen, SmolLM2) and for SentencePiece-style BPE with byte fallback (Llama 2, Mistral, Gemma).
//
// One text passes through: invalid UTF-8 replaced → added tokens found (seeker) → normalization of what lies
// between them (NFC, or space to ▁) → pieces (runs and rules, or word starts) → merges → ids. Every stage keeps
// its own position and stops when its ticks are used up, so that an actor can interleave several texts; see
// Encoding. Nothing in a text makes a stage quadratic.
//
// Two notions are kept apart. A token is special when decoding may leave it out (Hugging Face's `special`
// flag, type CONTROL in GGUF). It is a control token when text must not forge it: special tokens, and added
// tokens that are no piece of the ordinary vocabulary, such as Qwen's <think> and <tool_call>.
package tokenizer

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Limits on what a tokenizer file may ask for. Real files stay far below: the longest known piece has 1,024
// bytes, the largest vocabulary 262,208 entries.
const (
	maxVocab      = 1 << 22 // ids
	maxIDGap      = 1 << 16 // ids without a token
	maxAddedBytes = 512     // length of one added token; bounds the walk that the seeker does at one position
	// maxAdded is the number of added tokens, and maxAddedNodes that of their bytes that do not share a beginning,
	// each of which takes up to 100 in the tries. Gemma 3 has 6,400 tokens; speech models have 30,000 that are
	// numbered, and so share nearly all.
	maxAdded      = 1 << 16
	maxAddedNodes = 1 << 18
	// maxComponentBytes is the JSON of a normalizer, pre-tokenizer, post-processor or decoder. A part of three bytes
	// takes some 500 once it is read; released ones have 2 KB.
	maxComponentBytes = 64 << 10
)

// Bits of Tokenizer.flags, one byte for each id.
const (
	flagKnown   uint8 = 1 << iota // the id has a token
	flagSpecial                   // left out by Decode with skipSpecial
	flagControl                   // recognised only with ParseSpecial, outside plain spans
	flagByte                      // SentencePiece-style <0xNN>
	flagASCII                     // text is ASCII: the decoder can pass it on unseen
)

// Span is a byte range [Start, End) of a text.
type Span struct{ Start, End int }

// EncodeOptions says what Encode adds and recognises. The zero value takes the text as plain text.
type EncodeOptions struct {
	// AddSpecial puts the tokens around the text that the model asks for (BOS, EOS, or none).
	AddSpecial bool
	// ParseSpecial recognises control tokens written in the text.
	ParseSpecial bool
	// Plain lists byte ranges of the text in which control tokens are never recognised: a match that overlaps
	// one is skipped. The text is still tokenized as a whole, so a span does not move piece boundaries.
	Plain []Span
}

// Tokenizer is an immutable tokenizer, but for its memo; all its methods may be called from any goroutine.
type Tokenizer struct {
	text    string   // decoded bytes of all ids, one after the other
	offsets []uint32 // text of id i: text[offsets[i]:offsets[i+1]]
	flags   []uint8
	longest int // bytes of the longest token

	pieces      map[string]int32 // ordinary vocabulary by decoded bytes; no control or byte tokens
	controls    map[string]int32 // control tokens by text
	maxPieceLen int              // bytes of the longest entry of pieces
	pairs       pairTable
	memo        memo // what merging gave, for pieces met before

	ignoreMerges bool       // a piece in the vocabulary is taken whole
	byteIDs      [256]int32 // byte → id: the alphabet of byte-level BPE, or the fallback of SentencePiece style
	unk          int32      // -1: characters without a token are dropped
	fuseUnk      bool

	nfc       bool
	sentence  *sentenceRules // non-nil: SentencePiece style
	rules     *splitRules    // byte level: nil takes a segment as one piece
	added     []addedToken
	allAdded  *trie // every added token
	textAdded *trie // those that are not control tokens: recognised always

	prefix, suffix []int32 // what AddSpecial adds
	bos, eos       int32
}

// VocabSize returns the number of ids, which is the largest id plus one.
func (t *Tokenizer) VocabSize() int { return len(t.flags) }

// TokenText returns the text that id decodes to, which need not be valid UTF-8; "" for an unknown id. In
// SentencePiece-style vocabularies ▁ is a space.
func (t *Tokenizer) TokenText(id int32) string {
	if id < 0 || int(id) >= len(t.flags) {
		return ""
	}
	return t.text[t.offsets[id]:t.offsets[id+1]]
}

// IsControl reports whether id is a control token: one that text becomes only under ParseSpecial.
func (t *Tokenizer) IsControl(id int32) bool { return t.has(id, flagControl) }

func (t *Tokenizer) has(id int32, flag uint8) bool {
	return id >= 0 && int(id) < len(t.flags) && t.flags[id]&flag != 0
}

// ID returns the id of the token that decodes to text: a control token if there is one of that text.
func (t *Tokenizer) ID(text string) (int32, bool) {
	if id, ok := t.controls[text]; ok {
		return id, true
	}
	id, ok := t.pieces[text]
	return id, ok
}

// BOS returns the beginning-of-sequence token, if the model has one.
func (t *Tokenizer) BOS() (int32, bool) { return t.bos, t.bos >= 0 }

// EOS returns the end-of-sequence token, if the tokenizer's files name one.
func (t *Tokenizer) EOS() (int32, bool) { return t.eos, t.eos >= 0 }

// SpecialTokens returns the texts of all control tokens in the order of their ids. No text a client sends may
// become one of them.
func (t *Tokenizer) SpecialTokens() []string {
	var texts []string
	for id, f := range t.flags {
		if f&flagControl != 0 {
			texts = append(texts, t.TokenText(int32(id)))
		}
	}
	return texts
}

// token is one vocabulary entry on its way into a Tokenizer.
type token struct {
	text                   string // decoded bytes
	known, special         bool
	control, bytes, hidden bool // hidden: never the result of merging text
}

// build fills the tables that depend on the vocabulary alone.
func build(tokens []token) (*Tokenizer, error) {
	if len(tokens) == 0 {
		return nil, fmt.Errorf("tokenizer: the vocabulary is empty")
	}
	total := 0
	for _, tok := range tokens {
		total += len(tok.text)
	}
	if total > math.MaxUint32 {
		return nil, fmt.Errorf("tokenizer: vocabulary text of %d bytes is too large", total)
	}
	t := &Tokenizer{
		offsets:  make([]uint32, 1, len(tokens)+1),
		flags:    make([]uint8, len(tokens)),
		pieces:   make(map[string]int32, len(tokens)),
		controls: map[string]int32{},
		memo:     newMemo(),
		unk:      -1, bos: -1, eos: -1,
	}
	for i := range t.byteIDs {
		t.byteIDs[i] = -1
	}
	var text strings.Builder
	text.Grow(total)
	for _, tok := range tokens {
		text.WriteString(tok.text)
		t.offsets = append(t.offsets, uint32(text.Len()))
		t.longest = max(t.longest, len(tok.text))
	}
	t.text = text.String()
	for id, tok := range tokens {
		t.addFlags(int32(id), tok)
	}
	return t, nil
}

// addFlags sets the flags of an id and enters its text where it can be found: control tokens among the controls,
// ordinary pieces among the pieces, byte tokens and hidden ones nowhere.
func (t *Tokenizer) addFlags(id int32, tok token) {
	text := t.TokenText(id)
	set := func(on bool, flag uint8) {
		if on {
			t.flags[id] |= flag
		}
	}
	set(tok.known, flagKnown)
	set(tok.special, flagSpecial)
	set(tok.control, flagControl)
	set(tok.bytes, flagByte)
	set(isASCII(text), flagASCII)
	switch {
	case !tok.known || text == "":
	case tok.control:
		if _, taken := t.controls[text]; !taken {
			t.controls[text] = id
		}
	case !tok.bytes && !tok.hidden:
		// The lower id wins: duplicates exist in padded vocabularies only.
		if _, taken := t.pieces[text]; !taken {
			t.pieces[text] = id
			t.maxPieceLen = max(t.maxPieceLen, len(text))
		}
	}
}

// setEnds checks and stores BOS and EOS.
func (t *Tokenizer) setEnds(bos, eos int32) error {
	for _, id := range []int32{bos, eos} {
		if id >= 0 && !t.has(id, flagKnown) {
			return fmt.Errorf("tokenizer: BOS or EOS id %d has no token (vocabulary size %d)", id, len(t.flags))
		}
	}
	t.bos, t.eos = max(bos, -1), max(eos, -1)
	return nil
}

// setAdded builds the two tries from the added tokens.
func (t *Tokenizer) setAdded(added []addedToken) error {
	slices.SortFunc(added, func(a, b addedToken) int { return int(a.id) - int(b.id) })
	t.added = added
	t.allAdded, t.textAdded = newTrie(), newTrie()
	if len(added) > maxAdded {
		return fmt.Errorf("tokenizer: %d added tokens, limit %d", len(added), maxAdded)
	}
	for i, a := range added {
		if len(a.text) > maxAddedBytes {
			return fmt.Errorf("tokenizer: added token %d has %d bytes, limit %d", a.id, len(a.text), maxAddedBytes)
		}
		t.allAdded.insert(a.text, int32(i))
		if len(t.allAdded.end) > maxAddedNodes {
			return fmt.Errorf("tokenizer: the texts of %d added tokens have more than %d bytes that they do not share", len(added), maxAddedNodes)
		}
		if !t.IsControl(a.id) {
			t.textAdded.insert(a.text, int32(i))
		}
	}
	return nil
}

// load64 returns the eight bytes at s[i:], the first lowest.
func load64(s string, i int) uint64 {
	b := s[i : i+8]
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
}

func isASCII(s string) bool {
	i := 0
	for ; i+8 <= len(s); i += 8 {
		if load64(s, i)&0x8080808080808080 != 0 {
			return false
		}
	}
	for ; i < len(s); i++ {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}
