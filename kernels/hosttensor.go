package kernels

import "fmt"

// MaxDim bounds rows and columns of a weight, so that products of two stay far
// within 64 bits.
const MaxDim = 1 << 28

// Fill says how a tensor is made up instead of read: element i is Center + Spread*u,
// u uniform in [-1, 1) from the i-th value of splitmix64 from State on.
type Fill struct {
	State          uint64
	Center, Spread float64
}

// Filler is a Backend that can Pack tensors with a Fill, on its device.
type Filler interface {
	// Fills reports whether Pack takes tensors without Data but with a Fill.
	Fills() bool
}

// CheckParts verifies the tensors of one weight and returns its shape. Errors name
// the tensor.
func CheckParts(parts []HostTensor) (rows, cols int, err error) {
	if len(parts) == 0 {
		return 0, 0, fmt.Errorf("pack: no tensors")
	}
	cols = parts[0].Cols
	for i := range parts {
		if err := parts[i].check(cols); err != nil {
			return 0, 0, fmt.Errorf("pack: tensor %q: %w", parts[i].Name, err)
		}
		rows += parts[i].PackedRows()
	}
	if rows > MaxDim {
		return 0, 0, fmt.Errorf("pack: tensor %q and others: %d rows together, limit %d", parts[0].Name, rows, MaxDim)
	}
	return rows, cols, nil
}

func (t *HostTensor) check(cols int) error {
	if !t.DType.Valid() {
		return fmt.Errorf("unknown element type %v", t.DType)
	}
	if t.Rows <= 0 || t.Cols <= 0 || t.Rows > MaxDim || t.Cols > MaxDim {
		return fmt.Errorf("shape [%d, %d], want both in 1..%d", t.Rows, t.Cols, MaxDim)
	}
	if t.Cols != cols {
		return fmt.Errorf("%d columns, want %d as in the part before it", t.Cols, cols)
	}
	if e := t.DType.BlockElems(); cols%e != 0 {
		return fmt.Errorf("%d columns of %v, want a multiple of %d", cols, t.DType, e)
	}
	want := t.Rows * t.DType.RowBytes(cols)
	if t.Fill != nil {
		want = 0
	}
	if len(t.Data) != want {
		return fmt.Errorf("%d bytes, want %d for [%d, %d] %v", len(t.Data), want, t.Rows, t.Cols, t.DType)
	}
	if t.RowOrder == nil {
		return nil
	}
	if len(t.RowOrder) == 0 || len(t.RowOrder) > MaxDim {
		return fmt.Errorf("row order of length %d, want 1..%d", len(t.RowOrder), MaxDim)
	}
	for i, r := range t.RowOrder {
		if r < 0 || int(r) >= t.Rows {
			return fmt.Errorf("row order %d at %d, want 0..%d", r, i, t.Rows-1)
		}
	}
	return nil
}

// PackedRows returns the number of rows that t packs to.
func (t *HostTensor) PackedRows() int {
	if t.RowOrder != nil {
		return len(t.RowOrder)
	}
	return t.Rows
}

// SourceRow returns the bytes of packed row r.
func (t *HostTensor) SourceRow(r int) []byte {
	if t.RowOrder != nil {
		r = int(t.RowOrder[r])
	}
	n := t.DType.RowBytes(t.Cols)
	return t.Data[r*n : (r+1)*n]
}
