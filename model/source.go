package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"waybill/model/gguf"
)

// Limits of the files beside the weights, each several times the largest known.
const (
	maxConfigBytes    = 1 << 20
	maxTemplateBytes  = 1 << 20
	maxTokenizerBytes = 256 << 20
	// maxTemplates bounds a list of named templates; released ones have up to three.
	maxTemplates = 64
)

// Source is a model as it lies on disk: all but its weights is read already.
type Source struct {
	// Path is what Open was given.
	Path string
	// Name is the model's own name, or the file's or folder's.
	Name string
	// Config says what is computed.
	Config Config
	// Generation holds the makers' sampling defaults; empty for a GGUF file.
	Generation GenerationConfig
	// Vocab is the tokenizer of a GGUF file, nil for a folder.
	Vocab *gguf.Vocab
	// TokenizerJSON and TokenizerConfigJSON are the files of these names in a
	// folder; nil if it has none.
	TokenizerJSON, TokenizerConfigJSON []byte
	// ChatTemplates holds Jinja sources by name; "default" is the usual one.
	// Empty if the model has none.
	ChatTemplates map[string]string
	// TemplateTokens holds the texts that templates refer to by name, such as
	// "bos_token".
	TemplateTokens map[string]string

	gguf *gguf.File
}

// Open reads the model at path: a .gguf file or a Hugging Face folder. Weights
// are only mapped; Load or Close gives the mapping back.
func Open(path string) (*Source, error) {
	s := &Source{Path: path, ChatTemplates: map[string]string{}, TemplateTokens: map[string]string{}}
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	s.Name = strings.TrimSuffix(filepath.Base(abs), ".gguf")
	read := s.readGGUF
	if st.IsDir() {
		read = s.readFolder
	}
	if err := read(); err != nil {
		s.Close()
		return nil, fmt.Errorf("model: %w", err)
	}
	return s, nil
}

// Close unmaps the weights. It may be called more than once, and after Load.
func (s *Source) Close() error {
	if s.gguf == nil {
		return nil
	}
	return s.gguf.Close()
}

// readGGUF fills in what a GGUF file holds, which is everything.
func (s *Source) readGGUF() (err error) {
	if s.gguf, err = gguf.Open(s.Path); err != nil {
		return err
	}
	in := func(err error) error { return fmt.Errorf("%s: %w", s.Path, err) }
	if s.Config, err = parseGGUFConfig(s.gguf); err != nil {
		return in(err)
	}
	m := s.gguf.Metadata
	if s.Name, err = m.Str("general.name", s.Name); err != nil {
		return in(err)
	}
	// Read here, not when asked for: a file whose tokenizer is broken should fail
	// before its weights are packed.
	vocab, err := m.Vocab()
	if err != nil {
		return in(err)
	}
	if n := len(vocab.Tokens); n > s.Config.VocabSize {
		return in(fmt.Errorf("vocabulary of %d tokens, but token_embd.weight has %d rows", n, s.Config.VocabSize))
	}
	s.Vocab = &vocab
	s.Config.BOSTokenID = vocab.BOS
	ends, err := m.EndIDs(&vocab)
	if err != nil {
		return in(err)
	}
	s.Config.addEOS(ends)
	if err := s.Config.checkEOS(); err != nil {
		return in(err)
	}
	for name, id := range map[string]int32{"bos_token": vocab.BOS, "eos_token": vocab.EOS, "unk_token": vocab.UNK} {
		if id >= 0 {
			s.TemplateTokens[name] = vocab.Tokens[id]
		}
	}
	template, err := m.Str("tokenizer.chat_template", "")
	if err != nil {
		return in(err)
	}
	if template != "" {
		s.ChatTemplates["default"] = template
	}
	return nil
}

// readFolder reads the small files of a folder. Only config.json must be there:
// dummy weights need no more.
func (s *Source) readFolder() error {
	config, err := s.file("config.json", maxConfigBytes)
	if err != nil {
		return err
	}
	if config == nil {
		return fmt.Errorf("%s has no config.json", s.Path)
	}
	if s.Config, err = parseHFConfig(config); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(s.Path, "config.json"), err)
	}
	generation, err := s.file("generation_config.json", maxConfigBytes)
	if err != nil {
		return err
	}
	if generation != nil {
		if s.Generation, err = parseGenerationConfig(generation); err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(s.Path, "generation_config.json"), err)
		}
		s.Config.addEOS(s.Generation.EOSTokenIDs)
		if err := s.Config.checkEOS(); err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(s.Path, "generation_config.json"), err)
		}
	}
	if s.TokenizerJSON, err = s.file("tokenizer.json", maxTokenizerBytes); err != nil {
		return err
	}
	if s.TokenizerConfigJSON, err = s.file("tokenizer_config.json", maxTokenizerBytes); err != nil {
		return err
	}
	if s.TokenizerConfigJSON != nil {
		if err := s.readTokenizerConfig(); err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(s.Path, "tokenizer_config.json"), err)
		}
	}
	// Newer folders keep the template apart; it wins, as in transformers.
	template, err := s.file("chat_template.jinja", maxTemplateBytes)
	if template != nil {
		s.ChatTemplates["default"] = string(template)
	}
	return err
}

// file reads a file of the folder, nil if it does not exist.
func (s *Source) file(name string, limit int64) ([]byte, error) {
	path := filepath.Join(s.Path, name)
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	return data, nil
}

// templateFields are the fields of tokenizer_config.json that a template may name.
// A field holds the text, or an object with the text in "content".
type templateFields struct {
	BOS      json.RawMessage `json:"bos_token"`
	EOS      json.RawMessage `json:"eos_token"`
	Unknown  json.RawMessage `json:"unk_token"`
	Pad      json.RawMessage `json:"pad_token"`
	Sep      json.RawMessage `json:"sep_token"`
	Cls      json.RawMessage `json:"cls_token"`
	Mask     json.RawMessage `json:"mask_token"`
	Template json.RawMessage `json:"chat_template"`
}

// readTokenizerConfig takes what templates need; the rest is the tokenizer's.
func (s *Source) readTokenizerConfig() error {
	var f templateFields
	if err := json.Unmarshal(s.TokenizerConfigJSON, &f); err != nil {
		return err
	}
	for name, raw := range map[string]json.RawMessage{
		"bos_token": f.BOS, "eos_token": f.EOS, "unk_token": f.Unknown, "pad_token": f.Pad, "sep_token": f.Sep, "cls_token": f.Cls, "mask_token": f.Mask,
	} {
		if len(raw) == 0 || string(raw) == "null" {
			continue
		}
		var text string
		var object struct {
			Content string `json:"content"`
		}
		if err := json.Unmarshal(raw, &text); err != nil {
			if err := json.Unmarshal(raw, &object); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			text = object.Content
		}
		s.TemplateTokens[name] = text
	}
	return s.readTemplates(f.Template)
}

// readTemplates accepts one template or a list of named ones.
func (s *Source) readTemplates(raw json.RawMessage) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	if raw[0] == '"' {
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return fmt.Errorf("chat_template: %w", err)
		}
		s.ChatTemplates["default"] = text
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return fmt.Errorf("chat_template is neither a text nor a list")
	}
	for n := 0; d.More(); n++ {
		var t struct{ Name, Template string }
		if n == maxTemplates {
			return fmt.Errorf("chat_template: more than %d templates", maxTemplates)
		}
		if err := d.Decode(&t); err != nil {
			return fmt.Errorf("chat_template: %w", err)
		}
		s.ChatTemplates[t.Name] = t.Template
	}
	return nil
}
