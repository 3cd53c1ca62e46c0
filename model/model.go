package model

import (
	"errors"
	"fmt"

	"waybill/kernels"
	"waybill/model/safetensors"
)

// decoder is an architecture with its weights loaded.
type decoder interface {
	// forward runs one step over p. It allocates nothing.
	forward(p *pass)
}

// loaders holds each architecture's load function, under Config.Architecture.
var loaders = map[string]func(*loader) decoder{
	"llama": loadLlama,
	"qwen2": loadQwen2,
	"qwen3": loadQwen3,
}

// Model is a model whose weights are packed for one backend. It has no state: any
// number of caches and scratches may be used with it, one step at a time.
type Model struct {
	cfg       Config
	backend   kernels.Backend
	decoder   decoder
	quantized bool
	params    int64
	packed    int64
	file      int64 // bytes of the file's tensors
}

// LoadOptions says how weights are loaded.
type LoadOptions struct {
	// Progress, if set, is called as tensors are packed, with bytes of the file.
	Progress func(done, total int64)
	// Dummy makes up weights from the config alone, bfloat16, the same at every
	// start: for measuring a model without having it.
	Dummy bool
}

// Load packs the weights of src for backend b and unmaps src's files. Nothing
// is packed unless all tensors are there, of the right shape and type, and no
// others.
func Load(src *Source, b kernels.Backend, o LoadOptions) (*Model, error) {
	m, err := load(src, b, o)
	if err := errors.Join(err, src.Close()); err != nil {
		return nil, fmt.Errorf("model: load %s: %w", src.Path, err)
	}
	return m, nil
}

func load(src *Source, b kernels.Backend, o LoadOptions) (*Model, error) {
	m := &Model{cfg: src.Config, backend: b}
	set, err := src.tensors(o.Dummy)
	if err != nil {
		return nil, err
	}
	defer set.close()
	l := &loader{cfg: &m.cfg, set: set, backend: b, found: map[string]bool{}, progress: o.Progress}
	// Only llama's converter interleaves the rows; qwen's does not.
	_, isGGUF := set.(ggufSet)
	l.interleaved = isGGUF && m.cfg.Architecture == "llama"

	loadDecoder, ok := loaders[m.cfg.Architecture]
	if !ok {
		return nil, fmt.Errorf("architecture %q has no loader", m.cfg.Architecture)
	}
	l.dry = true
	loadDecoder(l)
	if l.err == nil {
		l.err = l.refuseExtra()
	}
	l.dry = false
	if l.err == nil {
		m.decoder = loadDecoder(l)
	}
	m.quantized, m.params, m.packed, m.file = l.quantized, l.params, l.packed, l.total
	return m, l.err
}

// tensors opens the weights.
func (s *Source) tensors(dummy bool) (tensorSet, error) {
	if dummy {
		return dummySet{name: s.Path}, nil
	}
	if s.gguf != nil {
		return ggufSet{s.gguf}, nil
	}
	folder, err := safetensors.OpenFolder(s.Path)
	if err != nil {
		return nil, err
	}
	return safetensorsSet{dir: s.Path, Folder: folder}, nil
}

// Config returns what is computed.
func (m *Model) Config() Config { return m.cfg }

// Backend returns what the weights were packed for.
func (m *Model) Backend() kernels.Backend { return m.backend }

// Quantized tells whether any weight is of a quantized type.
func (m *Model) Quantized() bool { return m.quantized }

// NumParams returns the number of weights in the file.
func (m *Model) NumParams() int64 { return m.params }

// WeightBytes returns the device memory that packed matrices take, in bytes.
func (m *Model) WeightBytes() int64 { return m.packed }

// FileBytes returns the bytes of the file's tensors, 0 where values are made up.
func (m *Model) FileBytes() int64 { return m.file }

// CacheSpec describes the KV memory of numBlocks blocks of blockSize tokens.
func (m *Model) CacheSpec(blockSize, numBlocks int, dt kernels.DType) kernels.CacheSpec {
	return kernels.CacheSpec{
		Layers:     m.cfg.NumLayers,
		NumKVHeads: m.cfg.NumKVHeads,
		HeadDim:    m.cfg.HeadDim,
		BlockSize:  blockSize,
		NumBlocks:  numBlocks,
		DType:      dt,
	}
}
