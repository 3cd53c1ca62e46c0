package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"

	"waybill/actors"
	"waybill/actors/mailbox"
	"waybill/httpapi"
	"waybill/kernels"
	"waybill/kernels/cpu"
	"waybill/model"
	"waybill/model/tokenizer"
)

// minBlocks is the smallest KV pool that is worth starting with.
const minBlocks = 4

// served is a loaded model, ready to be put on the wire.
type served struct {
	engine   *actors.Engine
	names    []string
	chat     httpapi.ChatTemplate
	defaults actors.SamplingOptions
	line     string // what the ready line says
	fatal    chan error
	*observers
}

// load opens the model, packs its weights and starts the engine.
func (c *serveCmd) load() (*served, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	dump, err := dumpWanted(os.Getenv("VT_TTFT_DUMP"))
	if err != nil {
		return nil, err
	}
	src, err := model.Open(c.Model)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	tok, err := newTokenizer(src)
	if err != nil {
		return nil, err
	}
	if n := tok.VocabSize(); n > src.Config.VocabSize {
		return nil, fmt.Errorf("%s: the tokenizer has %d tokens, the model's embedding only %d rows", c.Model, n, src.Config.VocabSize)
	}
	chat, err := newChat(src, tok)
	if err != nil {
		return nil, err
	}
	math, err := cpu.ParseMath(c.CPUMath)
	if err != nil {
		return nil, err
	}
	d, err := c.openDevice(math)
	if err != nil {
		return nil, err
	}
	backend := d.backend
	from := time.Now()
	m, err := model.Load(src, backend, model.LoadOptions{Dummy: c.LoadFormat == "dummy", Progress: progress(src.Name)})
	if err != nil {
		return nil, err
	}
	loadTime := time.Since(from)
	s := &served{chat: chat, defaults: defaults(src.Generation), fatal: make(chan error, 1)}
	if s.names = c.ServedModelName; len(s.names) == 0 {
		s.names = []string{strings.TrimSuffix(filepath.Base(filepath.Clean(c.Model)), ".gguf")}
	}
	cfg, notes, err := c.engineConfig(m, math, d)
	if err != nil {
		return nil, err
	}
	cfg.ModelName = s.names[0]
	cfg.OnFatal = func(err error) { s.fatal <- err }
	cfg.OnReport = func(f mailbox.Failure) {
		// Not straight to stderr: the repair must not wait for whoever reads it.
		fmt.Fprintf(s.lines, "waybill: actor %s failed: %v\n%s\n", f.Actor, f.Reason, f.Stack)
	}
	if s.observers, err = c.observe(&cfg, dump); err != nil {
		return nil, err
	}
	plantFaults(&cfg)
	if s.engine, err = actors.New(cfg, m, tok); err != nil {
		return nil, err
	}
	s.line = fmt.Sprintf("%s (%s, %d million parameters, packed %s), %s, %s%d KV blocks of %d tokens (%s), context %d%s",
		s.names[0], m.Config().Architecture, (m.NumParams()+500_000)/1_000_000, packed(m, loadTime), backend.Name(), d.note,
		cfg.NumBlocks, cfg.BlockSize, cfg.KVType, cfg.MaxModelLen, notes)
	return s, nil
}

// packed says what the matrices take in memory, and next to the file's tensors; and how fast those were loaded.
func packed(m *model.Model, took time.Duration) string {
	s := fmt.Sprintf("%d MB", m.WeightBytes()>>20)
	if file := m.FileBytes(); file > 0 {
		s += fmt.Sprintf(", %.2fx of the file", float64(m.WeightBytes())/float64(file))
		s += fmt.Sprintf(", at %.1f GB/s", float64(file)/1e9/took.Seconds())
	}
	return s
}

// newTokenizer makes the tokenizer of a model file or folder.
func newTokenizer(src *model.Source) (*tokenizer.Tokenizer, error) {
	if v := src.Vocab; v != nil {
		t, err := tokenizer.FromGGUF(tokenizer.GGUFVocab(*v))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", src.Path, err)
		}
		return t, nil
	}
	if src.TokenizerJSON == nil {
		return nil, fmt.Errorf("%s: tokenizer.json is missing", src.Path)
	}
	t, err := tokenizer.FromHF(src.TokenizerJSON, src.TokenizerConfigJSON)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", src.Path, err)
	}
	return t, nil
}

// defaults returns the sampling parameters that the model's makers recommend.
func defaults(g model.GenerationConfig) actors.SamplingOptions {
	o := actors.DefaultSampling()
	set := func(dst *float64, v *float64) {
		if v != nil {
			*dst = *v
		}
	}
	set(&o.Temperature, g.Temperature)
	set(&o.TopP, g.TopP)
	set(&o.MinP, g.MinP)
	set(&o.RepetitionPenalty, g.RepetitionPenalty)
	if g.TopK != nil {
		o.TopK = *g.TopK
	}
	return o
}

// engineConfig sizes the engine. notes say what was changed from what was asked.
func (c *serveCmd) engineConfig(m *model.Model, math cpu.Math, d device) (cfg actors.Config, notes string, err error) {
	mc := m.Config()
	cfg = actors.Config{
		MaxModelLen: mc.MaxPositionEmbeddings, MaxSeqs: c.MaxNumSeqs, MaxBatchedTokens: c.MaxNumBatchedTokens,
		BlockSize: c.BlockSize, PrefixCache: c.EnablePrefixCaching,
		PrefillChunk: time.Duration(c.PrefillChunkMs) * time.Millisecond,
		KVType:       d.kvType(c.KVCacheDtype, m, math), MaxQueuedReqs: c.MaxNumQueuedReqs, MaxQueuedTokens: c.MaxNumQueuedTokens,
		KeepAlive:  time.Duration(c.SSEKeepAlive) * time.Second,
		StuckAfter: c.StuckAfter, ConsoleActions: c.ConsoleActions, ShowContent: c.ConsoleShowContent,
		Intakes: d.intakes, Detokenizers: 2, OnCPU: !d.gpu,
	}
	if d.gpu {
		cfg.Telemetry = gpuTelemetry()
		cfg.ChunkUnit = gpuChunkUnit
	}
	if c.MaxModelLen > 0 {
		if c.MaxModelLen > mc.MaxPositionEmbeddings {
			return cfg, "", fmt.Errorf("--max-model-len %d: the model was made for %d positions", c.MaxModelLen, mc.MaxPositionEmbeddings)
		}
		cfg.MaxModelLen = c.MaxModelLen
	}
	bytes, err := c.kvBytes(m, d, &cfg)
	if err != nil {
		return cfg, "", err
	}
	block := m.CacheSpec(c.BlockSize, 1, cfg.KVType).BlockBytes()
	blocks := bytes / block
	if blocks < minBlocks {
		return cfg, "", fmt.Errorf("--kv-cache-memory-bytes %s holds %d blocks of %d bytes, at least %d are needed", orAuto(c.KVCacheMemoryBytes), blocks, block, minBlocks)
	}
	// More than every sequence at full length can use would never be used.
	most := int64(c.MaxNumSeqs) * int64((cfg.MaxModelLen+c.BlockSize-1)/c.BlockSize)
	cfg.NumBlocks = int(min(blocks, most))
	if fits := cfg.NumBlocks * c.BlockSize; fits < cfg.MaxModelLen {
		notes = fmt.Sprintf(" (lowered from %d: the KV memory holds no more)", cfg.MaxModelLen)
		cfg.MaxModelLen = fits
	}
	return cfg, notes, nil
}

// kvType resolves --kv-cache-dtype: float32 wherever arithmetic is float32.
func kvType(flag string, m *model.Model, math cpu.Math) kernels.DType {
	switch flag {
	case "f32":
		return kernels.F32
	case "f16":
		return kernels.F16
	case "bf16":
		return kernels.BF16
	}
	if math == cpu.F32 || !m.Quantized() {
		return kernels.F32
	}
	return kernels.F16
}

// parseBytes reads a size such as 1073741824, 512MiB or 1GiB.
func parseBytes(s string) (int64, error) {
	num, unit := s, int64(1)
	for suffix, u := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if n, ok := strings.CutSuffix(s, suffix); ok {
			num, unit = n, u
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(num), 10, 64)
	if err != nil || n <= 0 || n > (1<<62)/unit {
		return 0, fmt.Errorf("%q is not a size: give bytes, or a number with KiB, MiB or GiB", s)
	}
	return n * unit, nil
}

// progress draws a bar on a terminal, and nothing elsewhere.
func progress(name string) func(done, total int64) {
	if st, err := os.Stderr.Stat(); err != nil || st.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	var bar *progressbar.ProgressBar
	return func(done, total int64) {
		if bar == nil {
			bar = progressbar.DefaultBytes(total, "loading "+name)
		}
		_ = bar.Set64(done)
	}
}
