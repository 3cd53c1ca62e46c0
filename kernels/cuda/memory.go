//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"gorgonia.org/cu"

	"waybill/kernels"
	"waybill/kernels/cuda/driver"
	"waybill/kernels/quant"
)

// alloc returns device memory that Close frees. The context is current.
func (b *Backend) alloc(bytes int64) (cu.DevicePtr, error) {
	p, err := b.take(bytes)
	if err != nil {
		return 0, err
	}
	b.mu.Lock()
	b.opened = append(b.opened, p)
	b.mu.Unlock()
	return p, nil
}

// take returns device memory that its user frees.
func (b *Backend) take(bytes int64) (cu.DevicePtr, error) {
	err := b.fault("allocate")
	var p cu.DevicePtr
	if err == nil {
		p, err = cu.MemAlloc(max(bytes, 16))
	}
	if errors.Is(err, cu.OutOfMemory) {
		err = kernels.ErrOutOfMemory
	}
	if err != nil {
		return 0, fmt.Errorf("allocate %d bytes: %w", bytes, err)
	}
	return p, nil
}

// fault asks Options.Fault.
func (b *Backend) fault(what string) error {
	if b.options.Fault == nil {
		return nil
	}
	return b.options.Fault(what)
}

// allocPinned returns host memory that the device can read and write.
func (b *Backend) allocPinned(bytes int) (unsafe.Pointer, error) {
	p, err := driver.Pinned(bytes)
	if err != nil {
		return nil, fmt.Errorf("allocate %d bytes of pinned memory: %w", bytes, err)
	}
	b.mu.Lock()
	b.pinned = append(b.pinned, p)
	b.mu.Unlock()
	return p, nil
}

// buffer is n elements on the device. Activations are bf16. A buffer from Upload
// holds its values twice, since it may serve as a parameter, which is float32, or as
// activations. Logits are float32 only.
type buffer struct {
	n int
	// bf16 and float are 0 if there is no such copy.
	bf16, float cu.DevicePtr
	// wide says that the float32 copy is the newer one, raw that both hold what was
	// uploaded.
	wide, raw bool
	// rows says that products write float32 although there is a bf16 copy (NewRows).
	rows bool
	// cols is the width of the product that was written last, if it was float32.
	cols int
	// sums, if not 0, holds the sum of squares of each of sumRows rows: the rows are
	// still to be divided by their root mean square (see src/stream.cu).
	sums             cu.DevicePtr
	sumRows, sumCols int
	eps              float32
}

// Len returns the capacity in elements.
func (b *buffer) Len() int { return b.n }

// NewBuffer returns memory for n activations. Its contents are undefined.
func (b *Backend) NewBuffer(n int) (kernels.Buffer, error) { return b.newBuffer(n, true, false) }

// NewFloats returns memory for n elements of float32: logits, the residual stream.
func (b *Backend) NewFloats(n int) (kernels.Buffer, error) { return b.newBuffer(n, false, true) }

// NewRows returns memory for n elements of fused q, k, v rows. Products leave float32
// there; RopeAndCache rounds to bf16 behind the rotation.
func (b *Backend) NewRows(n int) (kernels.Buffer, error) {
	buf, err := b.newBuffer(n, true, true)
	if err != nil {
		return nil, err
	}
	buf.rows = true
	return buf, nil
}

func (b *Backend) newBuffer(n int, narrow, wide bool) (*buffer, error) {
	if n < 1 || n > 1<<40 {
		return nil, fmt.Errorf("cuda: buffer of %d elements", n)
	}
	leave, err := b.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	buf := &buffer{n: n}
	if narrow {
		if buf.bf16, err = b.alloc(int64(n) * 2); err != nil {
			return nil, fmt.Errorf("cuda: %w", err)
		}
	}
	if wide {
		if buf.float, err = b.alloc(int64(n) * 4); err != nil {
			return nil, fmt.Errorf("cuda: %w", err)
		}
	}
	return buf, nil
}

// Upload returns a buffer that holds data, as float32 and rounded to bf16.
func (b *Backend) Upload(data []float32) (kernels.Buffer, error) {
	buf, err := b.newBuffer(len(data), true, true)
	if err != nil {
		return nil, err
	}
	buf.raw = true
	leave, err := b.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	narrow := make([]uint16, len(data))
	for i, v := range data {
		narrow[i] = quant.F32ToBF16(v)
	}
	if err := cu.MemcpyHtoD(buf.float, unsafe.Pointer(&data[0]), int64(len(data))*4); err != nil {
		return nil, fmt.Errorf("cuda: upload %d values: %w", len(data), err)
	}
	if err := cu.MemcpyHtoD(buf.bf16, unsafe.Pointer(&narrow[0]), int64(len(data))*2); err != nil {
		return nil, fmt.Errorf("cuda: upload %d values: %w", len(data), err)
	}
	// The copies run on the default stream, for which ours does not wait.
	if err := cu.Synchronize(); err != nil {
		return nil, fmt.Errorf("cuda: upload %d values: %w", len(data), err)
	}
	return buf, nil
}

// Read copies the first len(dst) elements of src to dst, after all ops queued so far.
func (b *Backend) Read(dst []float32, src kernels.Buffer) {
	b.flush()
	buf, ok := src.(*buffer)
	if !ok || buf.n < len(dst) {
		panic(bug("read %d elements of a buffer of %d", len(dst), src.Len()))
	}
	if len(dst) == 0 {
		return
	}
	leave, err := b.enter()
	if err != nil {
		b.fail("read", err)
		return
	}
	defer leave()
	b.settle(buf)
	if err := b.stream.Synchronize(); err != nil {
		b.fail("read", err)
		return
	}
	if buf.bf16 == 0 || buf.wide {
		b.fail("read", cu.MemcpyDtoH(unsafe.Pointer(&dst[0]), buf.float, int64(len(dst))*4))
		return
	}
	narrow := make([]uint16, len(dst))
	if err := cu.MemcpyDtoH(unsafe.Pointer(&narrow[0]), buf.bf16, int64(len(dst))*2); err != nil {
		b.fail("read", err)
		for i := range dst {
			dst[i] = float32(math.NaN())
		}
		return
	}
	for i, v := range narrow {
		dst[i] = quant.BF16ToF32(v)
	}
}

// input returns the address of n activations that an op reads.
func (b *Backend) input(buf kernels.Buffer, n int, what string) cu.DevicePtr {
	p := activations(buf, n, what)
	b.settle(buf.(*buffer))
	return p
}

// output returns the address of n activations that an op writes.
func (b *Backend) output(buf kernels.Buffer, n int, what string) cu.DevicePtr {
	p := activations(buf, n, what)
	d := buf.(*buffer)
	d.wide, d.raw, d.sums = false, false, 0
	return p
}

// wide returns the address of n float32 elements that an op changes.
func wide(buf kernels.Buffer, n int, what string) cu.DevicePtr {
	p := parameter(buf, n, what)
	d := buf.(*buffer)
	d.wide, d.raw = true, false
	return p
}

// activations returns the address of n bf16 elements of a buffer.
func activations(buf kernels.Buffer, n int, what string) cu.DevicePtr {
	d, ok := buf.(*buffer)
	if !ok || d.bf16 == 0 || n < 0 || d.n < n {
		panic(bug("%s: want activations of %d elements, got %T of %d", what, n, buf, buf.Len()))
	}
	return d.bf16
}

// parameter returns the address of n float32 elements of an uploaded buffer.
func parameter(buf kernels.Buffer, n int, what string) cu.DevicePtr {
	d, ok := buf.(*buffer)
	if !ok || d.float == 0 || d.n < n {
		panic(bug("%s: want %d values of float32, got %T of %d", what, n, buf, buf.Len()))
	}
	return d.float
}
