package tokenizer

import (
	"bytes"
	"encoding/json"
	"encoding/json/jsontext"
	"fmt"
	"strconv"
	"strings"
)

// hfFile is tokenizer.json as far as it is read; the components are parsed by kind later.
type hfFile struct {
	AddedTokens   hfAddedList     `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         struct {
		Type                    string           `json:"type"`
		Dropout                 *float64         `json:"dropout"`
		UnkToken                *string          `json:"unk_token"`
		ContinuingSubwordPrefix *string          `json:"continuing_subword_prefix"`
		EndOfWordSuffix         *string          `json:"end_of_word_suffix"`
		FuseUnk                 bool             `json:"fuse_unk"`
		ByteFallback            bool             `json:"byte_fallback"`
		IgnoreMerges            bool             `json:"ignore_merges"`
		Vocab                   map[string]int32 `json:"vocab"`
		Merges                  hfMerges         `json:"merges"`
	} `json:"model"`
}

// hfAdded is an entry of added_tokens, or of added_tokens_decoder, where the id is the key.
type hfAdded struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	Lstrip     bool   `json:"lstrip"`
	Rstrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// hfAddedList is a list of added tokens, read one by one: the shortest entry has
// three bytes, and takes 40 once it is read.
type hfAddedList []hfAdded

// UnmarshalJSON refuses more than maxAdded tokens.
func (l *hfAddedList) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return fmt.Errorf("added_tokens is no list")
	}
	for d.More() {
		if len(*l) == maxAdded {
			return fmt.Errorf("more than %d added tokens", maxAdded)
		}
		var a hfAdded
		if err := d.Decode(&a); err != nil {
			return err
		}
		*l = append(*l, a)
	}
	return nil
}

// hfConfig is tokenizer_config.json as far as it is read.
type hfConfig struct {
	AddBOS        *bool              `json:"add_bos_token"`
	AddEOS        *bool              `json:"add_eos_token"`
	BOS           hfTokenName        `json:"bos_token"`
	EOS           hfTokenName        `json:"eos_token"`
	AddedByNumber map[string]hfAdded `json:"added_tokens_decoder"`
}

// hfTokenName is a token by name: a string, an object with the name in it, or null.
type hfTokenName string

// UnmarshalJSON reads any of the three forms.
func (n *hfTokenName) UnmarshalJSON(data []byte) error {
	var object struct {
		Content string `json:"content"`
	}
	if len(data) > 0 && data[0] == '{' {
		err := json.Unmarshal(data, &object)
		*n = hfTokenName(object.Content)
		return err
	}
	return json.Unmarshal(data, (*string)(n))
}

// hfMerges are merges, each as "left right" or ["left", "right"]. They are read one by one: an element of six bytes
// takes 32 once it is read, and anything that holds it on the way as much again.
type hfMerges []mergeRule

// UnmarshalJSON ends with the first merge that is none.
func (l *hfMerges) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(data))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '[' {
		return fmt.Errorf("merges is no list")
	}
	for d.PeekKind() != ']' {
		m, err := readMerge(d)
		if err != nil {
			return fmt.Errorf("merge %d: %w", len(*l), err)
		}
		*l = append(*l, m)
	}
	return nil
}

// readMerge reads a merge in either form.
func readMerge(d *jsontext.Decoder) (m mergeRule, err error) {
	t, err := d.ReadToken()
	if err != nil {
		return m, err
	}
	switch t.Kind() {
	case '"':
		return parseMerge(t.String())
	case '[':
		sides := [2]*string{&m.left, &m.right}
		for i := range sides {
			if t, err = d.ReadToken(); err != nil {
				return m, err
			}
			if t.Kind() != '"' {
				return m, fmt.Errorf("side %d is no text", i)
			}
			*sides[i] = t.String()
		}
		if t, err = d.ReadToken(); err == nil && t.Kind() != ']' {
			err = fmt.Errorf("it has more than two sides")
		}
		return m, err
	}
	return m, fmt.Errorf("it is neither a text nor a list")
}

// FromHF makes a tokenizer from the contents of tokenizer.json and tokenizer_config.json; the latter may be
// empty. A component that is not supported is an error that names it.
func FromHF(tokenizerJSON, tokenizerConfigJSON []byte) (*Tokenizer, error) {
	var f hfFile
	if err := json.Unmarshal(tokenizerJSON, &f); err != nil {
		return nil, fmt.Errorf("tokenizer: tokenizer.json: %w", err)
	}
	var cfg hfConfig
	if len(bytes.TrimSpace(tokenizerConfigJSON)) > 0 {
		if err := json.Unmarshal(tokenizerConfigJSON, &cfg); err != nil {
			return nil, fmt.Errorf("tokenizer: tokenizer_config.json: %w", err)
		}
	}
	if err := f.checkModel(); err != nil {
		return nil, fmt.Errorf("tokenizer: tokenizer.json: %w", err)
	}
	// The style comes first: how a piece of the vocabulary is read depends on it.
	p, err := f.pipeline()
	if err != nil {
		return nil, fmt.Errorf("tokenizer: tokenizer.json: %w", err)
	}
	if err := f.addFromConfig(cfg); err != nil {
		return nil, err
	}
	t, err := f.vocabulary(p.sentence != nil)
	if err != nil {
		return nil, err
	}
	t.nfc, t.rules, t.sentence = p.nfc, p.rules, p.sentence
	t.ignoreMerges = f.Model.IgnoreMerges
	if t.sentence != nil && t.sentence.cut == cutNever {
		t.sentence.cut = t.chooseCut(t.pairs.results())
	}
	if err := t.setAdded(f.added()); err != nil {
		return nil, err
	}
	return t, t.setEndsHF(f, cfg)
}

// checkModel refuses what would change the ids silently.
func (f *hfFile) checkModel() error {
	m := &f.Model
	switch {
	case m.Type != "BPE" && m.Type != "":
		return fmt.Errorf("model %q is not supported (only BPE)", m.Type)
	case m.Dropout != nil && *m.Dropout != 0:
		return fmt.Errorf("model with dropout %g is not supported", *m.Dropout)
	case m.ContinuingSubwordPrefix != nil && *m.ContinuingSubwordPrefix != "":
		return fmt.Errorf("model with continuing_subword_prefix %q is not supported", *m.ContinuingSubwordPrefix)
	case m.EndOfWordSuffix != nil && *m.EndOfWordSuffix != "":
		return fmt.Errorf("model with end_of_word_suffix %q is not supported", *m.EndOfWordSuffix)
	case len(m.Vocab) == 0:
		return fmt.Errorf("the vocabulary is empty")
	}
	return nil
}

// addFromConfig adds the tokens that only tokenizer_config.json lists.
func (f *hfFile) addFromConfig(cfg hfConfig) error {
	// tokenizer.json wins: the other file's entry may be older.
	have := map[int32]bool{}
	for _, a := range f.AddedTokens {
		have[a.ID] = true
	}
	for number, a := range cfg.AddedByNumber {
		id, err := strconv.ParseInt(number, 10, 32)
		if err != nil {
			return fmt.Errorf("tokenizer: tokenizer_config.json: added token id %.20q: %w", number, err)
		}
		if a.ID = int32(id); !have[a.ID] {
			f.AddedTokens = append(f.AddedTokens, a)
		}
	}
	return nil
}

// added returns the added tokens in the form the seeker takes.
func (f *hfFile) added() []addedToken {
	var added []addedToken
	for _, a := range f.AddedTokens {
		if a.Content == "" {
			continue
		}
		added = append(added, addedToken{
			id: a.ID, text: strings.Clone(a.Content),
			lstrip: a.Lstrip, rstrip: a.Rstrip, singleWord: a.SingleWord, normalized: a.Normalized,
		})
	}
	return added
}

// vocabulary builds the tables of a tokenizer from vocabulary, merges and added tokens.
func (f *hfFile) vocabulary(sentence bool) (*Tokenizer, error) {
	size := 0
	grow := func(id int32, text string) error {
		if id < 0 || int(id) >= len(f.Model.Vocab)+len(f.AddedTokens)+maxIDGap || id >= maxVocab {
			return fmt.Errorf("tokenizer: token %.50q has id %d, out of range for %d tokens",
				text, id, len(f.Model.Vocab)+len(f.AddedTokens))
		}
		size = max(size, int(id)+1)
		return nil
	}
	for text, id := range f.Model.Vocab {
		if err := grow(id, text); err != nil {
			return nil, err
		}
	}
	for _, a := range f.AddedTokens {
		if err := grow(a.ID, a.Content); err != nil {
			return nil, err
		}
	}
	tokens := make([]token, size)
	byteIDs := f.pieces(tokens, sentence)
	for _, a := range f.AddedTokens {
		old, tok := tokens[a.ID], &tokens[a.ID]
		// Beside special tokens those are control tokens that are no piece of the vocabulary (Qwen's <think>). Gemma's
		// <table> and its runs of newlines are pieces as well: text that has names.
		*tok = token{text: a.Content, known: true, special: a.Special}
		tok.control = a.Special || !old.known && !isBlank(a.Content)
		tok.hidden = !old.known
		if old.known && !tok.control {
			tok.text = old.text // a run of ▁ is still decoded to spaces
		}
	}
	t, err := build(tokens)
	if err != nil {
		return nil, err
	}
	if sentence {
		t.byteIDs = byteIDs
	} else {
		t.setAlphabet(f.Model.Vocab)
	}
	if f.Model.UnkToken != nil {
		if id, ok := f.Model.Vocab[*f.Model.UnkToken]; ok {
			t.unk, t.fuseUnk = id, f.Model.FuseUnk
		}
	}
	return t, t.setMerges(f.Model.Vocab, f.Model.Merges)
}

// pieces decodes the vocabulary into tokens, and returns the ids of the fallback bytes.
func (f *hfFile) pieces(tokens []token, sentence bool) (byteIDs [256]int32) {
	for i := range byteIDs {
		byteIDs[i] = -1
	}
	for piece, id := range f.Model.Vocab {
		tok := token{text: piece, known: true}
		if sentence {
			tok.text = strings.ReplaceAll(piece, "▁", " ")
			if b, ok := bytePiece(piece); ok && f.Model.ByteFallback {
				tok.text, tok.bytes = string([]byte{b}), true
				byteIDs[b] = id
			}
		} else if text, ok := fromByteChars(piece); ok {
			tok.text = text
		} else {
			tok.hidden = true
		}
		// Of two pieces with one id the lesser text stays, so that loading does not depend on map order.
		if old := &tokens[id]; !old.known || tok.text < old.text {
			*old = tok
		}
	}
	return byteIDs
}

// setEndsHF finds BOS and EOS, and what AddSpecial puts around a text: what tokenizer_config.json says
// explicitly, else what the post-processor's template says.
func (t *Tokenizer) setEndsHF(f hfFile, cfg hfConfig) error {
	ends := [2]int32{-1, -1}
	for i, name := range []hfTokenName{cfg.BOS, cfg.EOS} {
		if name == "" {
			continue
		}
		id, ok := t.ID(string(name))
		if !ok {
			return fmt.Errorf("tokenizer: tokenizer_config.json names %q, which is not in the vocabulary", string(name))
		}
		ends[i] = id
	}
	t.bos, t.eos = ends[0], ends[1]
	var err error
	if t.prefix, t.suffix, err = f.template(t); err != nil {
		return fmt.Errorf("tokenizer: tokenizer.json: %w", err)
	}
	if cfg.AddBOS != nil {
		t.prefix = endIf(*cfg.AddBOS, t.bos)
	}
	if cfg.AddEOS != nil {
		t.suffix = endIf(*cfg.AddEOS, t.eos)
	}
	// Without a configuration the template's only token before the text can be nothing but BOS.
	if t.bos < 0 && len(t.prefix) == 1 {
		t.bos = t.prefix[0]
	}
	return nil
}

// endIf returns the token if it is to be added and there is one.
func endIf(add bool, id int32) []int32 {
	if add && id >= 0 {
		return []int32{id}
	}
	return nil
}
