package cpu

import (
	"math"
	"strings"
	"testing"

	"waybill/kernels"
)

// upload makes a buffer or ends the test.
func upload(t *testing.T, b kernels.Backend, data ...float32) kernels.Buffer {
	t.Helper()
	buf, err := b.Upload(data)
	if err != nil {
		t.Fatal(err)
	}
	return buf
}

// wantValues compares the first elements of a buffer with values derived by hand.
func wantValues(t *testing.T, what string, b kernels.Backend, buf kernels.Buffer, want ...float32) {
	t.Helper()
	got := make([]float32, len(want))
	b.Read(got, buf)
	for i := range want {
		if math.Abs(float64(got[i]-want[i])) > 1e-6 {
			t.Errorf("%s: got %v, want %v", what, got, want)
			return
		}
	}
}

// f32Tensor returns a host tensor of float32 values.
func f32Tensor(name string, rows, cols int, values ...float32) kernels.HostTensor {
	data := make([]byte, 0, 4*len(values))
	for _, v := range values {
		u := math.Float32bits(v)
		data = append(data, byte(u), byte(u>>8), byte(u>>16), byte(u>>24))
	}
	return kernels.HostTensor{Name: name, DType: kernels.F32, Rows: rows, Cols: cols, Data: data}
}

func TestOracleOpsByHand(t *testing.T) {
	o := NewOracle(F32)
	defer o.Close()
	part := f32Tensor("w", 3, 2, 1, 2, 3, 4, 5, 6)
	part.RowOrder = []int32{2, 0, 1}
	w, err := o.Pack(part, f32Tensor("v", 1, 2, 7, 8))
	if err != nil {
		t.Fatal(err)
	}
	dst := upload(t, o, make([]float32, 16)...)

	o.MatMul(dst, upload(t, o, 1, 10), w, upload(t, o, 0, 0, 0, 100), 1)
	wantValues(t, "MatMul", o, dst, 65, 21, 43, 187)

	o.Begin(&kernels.Batch{Tokens: []int32{3, 0}, Logits: []int32{1}})
	o.Embed(dst, w)
	wantValues(t, "Embed", o, dst, 7, 8, 5, 6)
	out := upload(t, o, 0, 0)
	o.Gather(out, dst, 2)
	wantValues(t, "Gather", o, out, 5, 6)

	residual := upload(t, o, 1, 3)
	o.AddRMSNorm(dst, residual, upload(t, o, 2, 1), upload(t, o, 1, 2), 1, 2, 7)
	wantValues(t, "AddRMSNorm residual", o, residual, 3, 4)
	// mean of squares 12.5, plus 7: sqrt(19.5).
	wantValues(t, "AddRMSNorm", o, dst, 3/4.415880433, 8/4.415880433)

	o.SiLUMul(dst, upload(t, o, 0, 1, 5, 2), 1, 2)
	wantValues(t, "SiLUMul", o, dst, 0, 2*0.731058579)
}

// TestOracleAttentionByHand puts two tokens of one sequence into blocks 2 and 0
// of size 1. Rotation by the angles 0 and pi/2 takes k = (1, 0) to (0, 1).
func TestOracleAttentionByHand(t *testing.T) {
	for _, dt := range []kernels.DType{kernels.F32, kernels.F16, kernels.BF16} {
		o := NewOracle(F32)
		defer o.Close()
		c, err := o.NewCache(kernels.CacheSpec{Layers: 1, NumKVHeads: 1, HeadDim: 2, BlockSize: 1, NumBlocks: 3, DType: dt})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		o.Begin(&kernels.Batch{
			Tokens: []int32{0, 0}, Positions: []int32{0, 1}, Slots: []int32{2, 0},
			Seqs: []kernels.BatchSeq{{Len: 2, Blocks: []int32{2, 0}}},
		})
		a := kernels.QKV{NumHeads: 1, NumKVHeads: 1, HeadDim: 2, InvFreq: upload(t, o, math.Pi/2), Scale: 1}
		//             q      k     v         q     k     v
		qkv := upload(t, o, 5, 0, 1, 0, 4, 8, 0, -1, 1, 0, 8, 16)
		o.RopeAndCache(qkv, c, a)
		wantValues(t, "rotated", o, qkv, 5, 0, 1, 0, 4, 8, 1, 0, 0, 1, 8, 16)
		dst := upload(t, o, 0, 0, 0, 0)
		o.Attention(dst, qkv, c, a)
		// Token 1: scores q·k = 1 and 0, so weights e/(e+1) and 1/(e+1).
		p := float32(0.731058579)
		wantValues(t, "attention "+dt.String(), o, dst, 4, 8, 4*p+8*(1-p), 8*p+16*(1-p))
		a.Window = 1
		o.Attention(dst, qkv, c, a)
		wantValues(t, "window 1", o, dst, 4, 8, 8, 16)
	}
}

func TestPackRefusesWhatDoesNotFit(t *testing.T) {
	o := NewOracle(Int8)
	good := func() kernels.HostTensor {
		return kernels.HostTensor{Name: "blk.0.w", DType: kernels.Q4_1, Rows: 2, Cols: 64, Data: make([]byte, 80)}
	}
	if _, err := o.Pack(good()); err != nil {
		t.Fatalf("a good tensor: %v", err)
	}
	check := func(want string, parts ...kernels.HostTensor) {
		t.Helper()
		_, err := o.Pack(parts...)
		if err == nil {
			t.Errorf("no error, want one with %q", want)
			return
		}
		if len(parts) > 0 && !strings.Contains(err.Error(), parts[len(parts)-1].Name) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %q, want the tensor's name and %q", err, want)
		}
	}
	check("no tensors")
	h := good()
	h.Data = h.Data[:79]
	check("79 bytes, want 80", h)
	h = good()
	h.Cols = 63
	check("multiple of 32", h)
	h = good()
	h.DType = 200
	check("unknown element type", h)
	h = good()
	h.Rows = 0
	check("shape [0, 64]", h)
	h = good()
	h.Rows, h.Cols = 1<<62, 1<<40
	check("shape", h)
	h = good()
	h.RowOrder = []int32{0, 2}
	check("row order 2", h)
	h = good()
	h.RowOrder = []int32{-1}
	check("row order -1", h)
	h = good()
	h.Cols, h.Data = 32, h.Data[:40]
	check("32 columns, want 64", good(), h)
}
