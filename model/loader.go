package model

import (
	"fmt"
	"strings"

	"waybill/kernels"
	"waybill/kernels/quant"
)

// loader hands tensors from a file to a backend. An architecture's load function
// runs over it twice: first dry, which finds and checks every tensor and adds up
// the bytes, then for good. So a wrong file fails before anything is packed.
//
// The first error sticks: what is returned after it is nil, and Load looks at
// err in the end.
type loader struct {
	cfg     *Config
	set     tensorSet
	backend kernels.Backend
	// interleaved tells that q and k rows lie as GGUF's llama has them.
	interleaved bool
	dry         bool
	found       map[string]bool
	quantized   bool
	done, total int64
	// params and packed count elements and bytes of device memory.
	params, packed int64
	progress       func(done, total int64)
	err            error
}

// find returns a tensor of the wanted shape.
func (l *loader) find(name string, want ...int) (fileTensor, bool) {
	if l.err != nil {
		return fileTensor{}, false
	}
	l.found[name] = true // missing ones too: they end the load anyway
	var t fileTensor
	if d, ok := l.set.(dummySet); ok && l.dry {
		// Making up values only to look at their shape takes as long as packing.
		t = fileTensor{file: d.name, name: name, dtype: kernels.BF16, shape: want}
	} else if t, l.err = l.set.find(name, want); l.err != nil {
		return fileTensor{}, false
	}
	if fmt.Sprint(t.shape) != fmt.Sprint(want) {
		l.err = fmt.Errorf("%s: tensor %s: shape %v, expected %v", t.file, t.name, t.shape, want)
		return fileTensor{}, false
	}
	// Counted once, though the second run comes by here again.
	if l.dry {
		elems := int64(1)
		for _, d := range want {
			elems *= int64(d)
		}
		l.params += elems
		l.total += int64(len(t.data))
		l.quantized = l.quantized || t.dtype.Quantized()
	}
	return t, true
}

// matrix returns the matrix name [rows, cols], to be packed.
func (l *loader) matrix(name string, rows, cols int) kernels.HostTensor {
	if d, ok := l.set.(dummySet); ok && !l.dry {
		if b, ok := l.backend.(kernels.Filler); ok && b.Fills() {
			f := d.fill(name, []int{rows, cols})
			return kernels.HostTensor{Name: d.name + ": " + name, DType: kernels.BF16, Rows: rows, Cols: cols, Fill: &f}
		}
	}
	t, ok := l.find(name, rows, cols)
	if !ok {
		return kernels.HostTensor{}
	}
	if cols%t.dtype.BlockElems() != 0 {
		l.err = fmt.Errorf("%s: tensor %s: %d columns, expected a multiple of %s's %d", t.file, t.name, cols, t.dtype, t.dtype.BlockElems())
		return kernels.HostTensor{}
	}
	return kernels.HostTensor{Name: t.file + ": " + t.name, DType: t.dtype, Rows: rows, Cols: cols, Data: t.data}
}

// rotary is matrix for the projection of q or k: rows of numHeads heads come out
// in the order that rotates element i with i + headDim/2.
func (l *loader) rotary(name string, numHeads, headDim, cols int) kernels.HostTensor {
	t := l.matrix(name, numHeads*headDim, cols)
	if l.interleaved && l.err == nil && !l.dry {
		t.RowOrder = uninterleave(numHeads, headDim)
	}
	return t
}

// uninterleave returns the source row of each row of q or k: GGUF's llama stores
// a head's element i at row 2i and its partner i + headDim/2 at row 2i + 1.
func uninterleave(numHeads, headDim int) []int32 {
	order := make([]int32, 0, numHeads*headDim)
	for head := range numHeads {
		for half := range 2 {
			for i := range headDim / 2 {
				order = append(order, int32(head*headDim+2*i+half))
			}
		}
	}
	return order
}

// pack turns matrices of equal width into one weight, rows below one another.
func (l *loader) pack(parts ...kernels.HostTensor) kernels.Weight {
	if l.err != nil || l.dry {
		return nil
	}
	w, err := l.backend.Pack(parts...)
	if err != nil {
		l.err = err
		return nil
	}
	l.packed += w.Bytes()
	for _, p := range parts {
		l.advance(len(p.Data))
	}
	return w
}

// vector uploads the vectors of these names and sizes, one after another.
func (l *loader) vector(parts ...vectorPart) kernels.Buffer {
	var values []float32
	for _, p := range parts {
		t, ok := l.find(p.name, p.size)
		if !ok {
			return nil
		}
		// No converter quantizes a vector, and its size need not fill blocks.
		if t.dtype.Quantized() {
			l.err = fmt.Errorf("%s: tensor %s: type %s, expected one of F32, F16, BF16", t.file, t.name, t.dtype)
			return nil
		}
		if l.dry {
			continue
		}
		at := len(values)
		values = append(values, make([]float32, p.size)...)
		quant.Dequantize(values[at:], t.dtype, t.data)
		l.advance(len(t.data))
	}
	if l.dry {
		return nil
	}
	return l.upload(values)
}

// vectorPart names a tensor of one dimension.
type vectorPart struct {
	name string
	size int
}

func (l *loader) upload(values []float32) kernels.Buffer {
	if l.err != nil {
		return nil
	}
	b, err := l.backend.Upload(values)
	if err != nil {
		l.err = fmt.Errorf("upload %d values: %w", len(values), err)
	}
	return b
}

// ropeFreqs is the tensor in which GGUF keeps what the llama3 scaling comes to:
// a divisor for each frequency.
const ropeFreqs = "rope_freqs.weight"

// invFreq uploads the rotary frequencies.
func (l *loader) invFreq() kernels.Buffer {
	freqs := l.cfg.invFreq()
	if g, ok := l.set.(ggufSet); ok {
		if _, ok := g.f.Tensor(ropeFreqs); ok {
			l.divideFreqs(freqs)
		}
	}
	if l.dry {
		return nil
	}
	return l.upload(freqs)
}

func (l *loader) divideFreqs(freqs []float32) {
	t, ok := l.find(ropeFreqs, len(freqs))
	if !ok {
		return
	}
	if t.dtype != kernels.F32 {
		l.err = fmt.Errorf("%s: tensor %s: type %s, expected F32", t.file, t.name, t.dtype)
		return
	}
	// The converter computed them in float32, so the frequencies may differ in the
	// last bit from those that the folder's config gives.
	divisors := make([]float32, len(freqs))
	quant.Dequantize(divisors, t.dtype, t.data)
	for i, d := range divisors {
		if !(d > 0) {
			l.err = fmt.Errorf("%s: tensor %s: element %d is %g, expected more than 0", t.file, t.name, i, d)
			return
		}
		freqs[i] /= d
	}
	if !l.dry {
		l.advance(len(t.data))
	}
}

// refuseExtra makes tensors that the architecture has no use for an error: they
// would be a part of the model that is silently not computed.
func (l *loader) refuseExtra() error {
	found := l.found
	if l.cfg.TieWordEmbeddings {
		// Some checkpoints store the tied head once more.
		found["lm_head.weight"] = true
	}
	names := l.set.extra(found)
	if len(names) == 0 {
		return nil
	}
	const show = 3
	return fmt.Errorf("%d tensors that a %s decoder does not have, such as %s",
		len(names), l.cfg.Architecture, strings.Join(names[:min(show, len(names))], ", "))
}

func (l *loader) advance(n int) {
	l.done += int64(n)
	if l.progress != nil {
		l.progress(l.done, l.total)
	}
}
