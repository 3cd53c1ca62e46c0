//go:build cuda

package cuda

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"gorgonia.org/cu"

	"waybill/kernels"
	"waybill/kernels/cuda/driver"
	"waybill/kernels/quant"
)

// weight is a row-major bf16 matrix.
type weight struct {
	rows, cols int
	data       cu.DevicePtr
}

// Rows returns the output features.
func (w *weight) Rows() int { return w.rows }

// Cols returns the input features.
func (w *weight) Cols() int { return w.cols }

// Bytes returns the device memory held, in bytes.
func (w *weight) Bytes() int64 { return int64(w.rows) * int64(w.cols) * 2 }

// Pack returns a weight whose rows are those of all parts in order, rounded to bf16.
func (b *Backend) Pack(parts ...kernels.HostTensor) (kernels.Weight, error) {
	rows, cols, err := kernels.CheckParts(parts)
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	leave, err := b.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	w := &weight{rows: rows, cols: cols}
	if w.data, err = b.alloc(w.Bytes()); err != nil {
		return nil, fmt.Errorf("cuda: pack: tensor %q, [%d, %d]: %w", parts[0].Name, rows, cols, err)
	}
	to := w.data
	for i := range parts {
		t := &parts[i]
		if t.Fill != nil {
			err = b.fillTensor(to, t)
		} else {
			err = b.copyTensor(to, t)
		}
		if err != nil {
			return nil, fmt.Errorf("cuda: pack: tensor %q: %w", t.Name, err)
		}
		to += cu.DevicePtr(int64(t.PackedRows()) * int64(cols) * 2)
	}
	return w, b.stream.Synchronize()
}

// fillTensor makes the values up on the device.
func (b *Backend) fillTensor(to cu.DevicePtr, t *kernels.HostTensor) error {
	var a driver.Args
	n := uint64(t.Rows) * uint64(t.Cols)
	a.Ptr(to).Uint64(n).Uint64(t.Fill.State).Double(t.Fill.Center).Double(t.Fill.Spread)
	s := driver.Shape{Grid: [3]int{8 * b.sms, 1, 1}, Block: 256}
	return s.Launch(b.fn.fill, b.stream, &a)
}

// copyTensor converts rows on all cores into one of two pinned buffers while the
// other is on its way.
func (b *Backend) copyTensor(to cu.DevicePtr, t *kernels.HostTensor) error {
	b.mu.Lock() // the staging buffers
	defer b.mu.Unlock()
	rows, rowBytes := t.PackedRows(), t.Cols*2
	if rowBytes > stagingBytes {
		return fmt.Errorf("rows of %d columns, at most %d", t.Cols, stagingBytes/2)
	}
	per := stagingBytes / rowBytes
	var inFlight [2]bool
	for first, turn := 0, 0; first < rows; first, turn = first+per, 1-turn {
		n := min(per, rows-first)
		if inFlight[turn] {
			// The copy before the last one reads this buffer; there is one stream, so
			// waiting for it waits for both. Converting is the slower part.
			if err := b.stream.Synchronize(); err != nil {
				return err
			}
			inFlight = [2]bool{}
		}
		dst := unsafe.Slice((*uint16)(b.staging[turn]), n*t.Cols)
		convertRows(dst, t, first, n)
		if err := cu.MemcpyHtoDAsync(to+cu.DevicePtr(int64(first)*int64(rowBytes)), b.staging[turn], int64(n*rowBytes), b.stream); err != nil {
			return err
		}
		inFlight[turn] = true
	}
	return b.stream.Synchronize()
}

// convertRows writes packed rows [first, first+n) of t to dst as bf16.
func convertRows(dst []uint16, t *kernels.HostTensor, first, n int) {
	workers := min(runtime.GOMAXPROCS(0), n, max(1, n*t.Cols>>16))
	var done sync.WaitGroup
	for i := range workers {
		done.Go(func() {
			var wide []float32
			for r := i * n / workers; r < (i+1)*n/workers; r++ {
				out, src := dst[r*t.Cols:(r+1)*t.Cols], t.SourceRow(first+r)
				if t.DType == kernels.BF16 {
					copy(unsafe.Slice((*byte)(unsafe.Pointer(&out[0])), 2*len(out)), src) // little-endian both
					continue
				}
				if wide == nil {
					wide = make([]float32, t.Cols)
				}
				quant.Dequantize(wide, t.DType, src)
				for j, v := range wide {
					out[j] = quant.F32ToBF16(v)
				}
			}
		})
	}
	done.Wait()
}
