package model

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"waybill/kernels"
)

// nullBackend computes nothing and keeps the names of the ops it was asked for.
type nullBackend struct {
	ops    []string
	record bool
}

type nullBuffer int

func (n nullBuffer) Len() int { return int(n) }

type nullWeight struct{ rows, cols int }

func (w nullWeight) Rows() int    { return w.rows }
func (w nullWeight) Cols() int    { return w.cols }
func (w nullWeight) Bytes() int64 { return 0 }

func (b *nullBackend) note(op string, rows int) {
	if b.record {
		b.ops = append(b.ops, fmt.Sprintf("%s %d", op, rows))
	}
}

func (b *nullBackend) Name() string                                      { return "null" }
func (b *nullBackend) NewBuffer(n int) (kernels.Buffer, error)           { return nullBuffer(n), nil }
func (b *nullBackend) Upload(d []float32) (kernels.Buffer, error)        { return nullBuffer(len(d)), nil }
func (b *nullBackend) NewCache(kernels.CacheSpec) (kernels.Cache, error) { return nil, nil }
func (b *nullBackend) Pack(p ...kernels.HostTensor) (kernels.Weight, error) {
	w := nullWeight{cols: p[0].Cols}
	for _, x := range p {
		w.rows += x.Rows
	}
	return w, nil
}
func (b *nullBackend) Begin(*kernels.Batch)                                   {}
func (b *nullBackend) End() error                                             { return nil }
func (b *nullBackend) Embed(kernels.Buffer, kernels.Weight)                   { b.note("embed", 0) }
func (b *nullBackend) Read([]float32, kernels.Buffer)                         {}
func (b *nullBackend) Close() error                                           { return nil }
func (b *nullBackend) Gather(_, _ kernels.Buffer, cols int)                   { b.note("gather", 0) }
func (b *nullBackend) SiLUMul(_, _ kernels.Buffer, rows, _ int)               { b.note("silumul", rows) }
func (b *nullBackend) RMSNorm(_, _, _ kernels.Buffer, rows, _ int, _ float32) { b.note("norm", rows) }
func (b *nullBackend) AddRMSNorm(_, _, _, _ kernels.Buffer, rows, _ int, _ float32) {
	b.note("addnorm", rows)
}
func (b *nullBackend) MatMul(_, _ kernels.Buffer, _ kernels.Weight, _ kernels.Buffer, rows int) {
	b.note("matmul", rows)
}
func (b *nullBackend) RopeAndCache(kernels.Buffer, kernels.Cache, kernels.QKV) { b.note("rope", 0) }
func (b *nullBackend) Attention(_, _ kernels.Buffer, _ kernels.Cache, _ kernels.QKV) {
	b.note("attention", 0)
}

// nullModel loads a tiny model for a backend that computes nothing.
func nullModel(t testing.TB, name string) (*Model, *nullBackend, *Scratch) {
	t.Helper()
	b := &nullBackend{}
	m := loadModel(t, filepath.Join("testdata", "tiny", name), b)
	s, err := m.NewScratch(8, 2)
	if err != nil {
		t.Fatal(err)
	}
	return m, b, s
}

func TestForwardDoesNotAllocate(t *testing.T) {
	for _, name := range tinyModels {
		m, _, s := nullModel(t, name)
		batch := &kernels.Batch{Tokens: make([]int32, 8), Logits: make([]int32, 2)}
		logits := make([]float32, 2*m.cfg.VocabSize)
		if n := testing.AllocsPerRun(100, func() { m.Step(batch, nil, s, logits) }); n != 0 {
			t.Errorf("%s: %g allocations a step, want 0", name, n)
		}
	}
}

func TestOnlyWantedRowsGoThroughTheLastLayerAndTheHead(t *testing.T) {
	m, b, s := nullModel(t, "qwen3_tied")
	b.record = true
	run := func(logits int) string {
		b.ops = nil
		m.Forward(&kernels.Batch{Tokens: make([]int32, 8), Logits: make([]int32, logits)}, nil, s)
		return strings.Join(b.ops, ", ")
	}
	firstLayer := "embed 0, norm 8, matmul 8, rope 0, attention 0, matmul 8, addnorm 8, matmul 8, silumul 8, matmul 8, "
	want := firstLayer + "addnorm 8, matmul 8, rope 0, attention 0, gather 0, gather 0, " +
		"matmul 2, addnorm 2, matmul 2, silumul 2, matmul 2, addnorm 2, matmul 2"
	if got := run(2); got != want {
		t.Errorf("two rows of logits:\n got %s\nwant %s", got, want)
	}
	// A chunk in the middle of a prompt only has to leave its keys and values.
	if got, want := run(0), firstLayer+"addnorm 8, matmul 8, rope 0"; got != want {
		t.Errorf("no logits:\n got %s\nwant %s", got, want)
	}
}

func TestTooLargeABatchIsABug(t *testing.T) {
	m, _, s := nullModel(t, "llama")
	for _, b := range []*kernels.Batch{
		{}, {Tokens: make([]int32, 9)}, {Tokens: make([]int32, 8), Logits: make([]int32, 3)},
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "BUG: model: step") {
					t.Errorf("%d tokens, %d logits: got panic %q", len(b.Tokens), len(b.Logits), text)
				}
			}()
			m.Forward(b, nil, s)
		}()
	}
	if _, err := m.NewScratch(0, 1); err == nil {
		t.Error("scratch for no tokens: no error")
	}
}
