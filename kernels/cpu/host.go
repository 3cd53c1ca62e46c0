package cpu

import (
	"fmt"

	"waybill/kernels"
)

// maxDim bounds rows and columns of a weight, so that no product of the two
// with an element size overflows. The largest matrices known are below 2^20.
const maxDim = 1 << 24

// checkParts verifies what Pack was given and returns the packed shape.
func checkParts(parts []kernels.HostTensor) (rows, cols int, err error) {
	if len(parts) == 0 {
		return 0, 0, fmt.Errorf("cpu: pack: no tensors")
	}
	cols = parts[0].Cols
	for i := range parts {
		n, err := checkPart(&parts[i], cols)
		if err != nil {
			return 0, 0, fmt.Errorf("cpu: pack: tensor %q: %w", parts[i].Name, err)
		}
		rows += n
	}
	if rows > maxDim {
		return 0, 0, fmt.Errorf("cpu: pack: tensor %q and others: %d rows together, limit %d", parts[0].Name, rows, maxDim)
	}
	return rows, cols, nil
}

// checkPart verifies one tensor and returns the number of rows it packs to.
func checkPart(t *kernels.HostTensor, cols int) (int, error) {
	if !t.DType.Valid() {
		return 0, fmt.Errorf("unknown element type %v", t.DType)
	}
	if t.Rows <= 0 || t.Cols <= 0 || t.Rows > maxDim || t.Cols > maxDim {
		return 0, fmt.Errorf("shape [%d, %d], want both in 1..%d", t.Rows, t.Cols, maxDim)
	}
	if t.Cols != cols {
		return 0, fmt.Errorf("%d columns, want %d as in the part before it", t.Cols, cols)
	}
	if e := t.DType.BlockElems(); cols%e != 0 {
		return 0, fmt.Errorf("%d columns of %v, want a multiple of %d", cols, t.DType, e)
	}
	if want := t.Rows * t.DType.RowBytes(cols); len(t.Data) != want {
		return 0, fmt.Errorf("%d bytes, want %d for [%d, %d] %v", len(t.Data), want, t.Rows, t.Cols, t.DType)
	}
	if t.RowOrder == nil {
		return t.Rows, nil
	}
	if len(t.RowOrder) == 0 || len(t.RowOrder) > maxDim {
		return 0, fmt.Errorf("row order of length %d, want 1..%d", len(t.RowOrder), maxDim)
	}
	for i, r := range t.RowOrder {
		if r < 0 || int(r) >= t.Rows {
			return 0, fmt.Errorf("row order %d at %d, want 0..%d", r, i, t.Rows-1)
		}
	}
	return len(t.RowOrder), nil
}

// checkCache verifies a cache's spec.
func checkCache(s kernels.CacheSpec) error {
	if s.Layers <= 0 || s.NumKVHeads <= 0 || s.HeadDim <= 0 || s.BlockSize <= 0 || s.NumBlocks <= 0 {
		return fmt.Errorf("cpu: cache: %+v: every number must be positive", s)
	}
	if s.DType != kernels.F32 && s.DType != kernels.F16 && s.DType != kernels.BF16 {
		return fmt.Errorf("cpu: cache: element type %v, want F32, F16 or BF16", s.DType)
	}
	return nil
}

// checkLayer verifies that a layer's shape is the cache's.
func checkLayer(s kernels.CacheSpec, a kernels.QKV) {
	if a.Layer < 0 || a.Layer >= s.Layers || a.NumKVHeads != s.NumKVHeads || a.HeadDim != s.HeadDim ||
		a.HeadDim%2 != 0 || a.NumHeads <= 0 || a.NumHeads%a.NumKVHeads != 0 {
		panic(bug("attention %+v over cache %+v", a, s))
	}
}

// bug returns the text of a panic for a broken contract.
func bug(format string, args ...any) string { return fmt.Sprintf("BUG: cpu: "+format, args...) }
