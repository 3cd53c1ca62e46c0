//go:build cuda

package cuda

import (
	"fmt"

	"gorgonia.org/cu"

	"waybill/kernels/cuda/driver"
)

// functions are the kernels, by the names in their sources.
type functions struct {
	bind                    cu.Function
	copyRows, copyRowsFloat cu.Function
	rmsNorm, rmsNormFloat   cu.Function
	addRMSNorm, scaleRows   cu.Function
	siluMul, ropeCache      cu.Function
	attention               cu.Function
	decode, turnDecode      map[int]cu.Function // by head width
	matmul, matmulFloat     cu.Function
	gemm                    [gemmModes][4]cu.Function // by rows, see gemmRows
	pick, done, fill        cu.Function
}

// The modes of src/gemm.cu.
const (
	gemmPlain = iota
	gemmFloat
	gemmGated
	gemmResidual
	gemmModes
)

// gemmRows are the row counts that the kernels of src/gemm.cu are made for, and
// gemmShared the dynamic shared memory that each takes: a ring of stages of 8 KiB of
// weights and 128 bytes a row.
var (
	gemmRows   = [4]int{8, 16, 32, 64}
	gemmShared = [4]int{8 * (8192 + 8*128), 7 * (8192 + 16*128), 6 * (8192 + 32*128), 4 * (8192 + 64*128)}
)

// load reads all modules. Unknown names are errors of the build.
func (f *functions) load() error {
	var decode64, decode128, turn64, turn128 cu.Function
	type want struct {
		fn   *cu.Function
		name string
	}
	for _, m := range []struct {
		file, image string
		want        []want
	}{
		{"bind", bindImage, []want{{&f.bind, "bind"}}},
		{"rows", rowsImage, []want{
			{&f.copyRows, "copy_rows"}, {&f.copyRowsFloat, "copy_rows_float"}, {&f.rmsNorm, "rms_norm"}, {&f.rmsNormFloat, "rms_norm_float"},
			{&f.addRMSNorm, "add_rms_norm"}, {&f.scaleRows, "scale_rows"}, {&f.siluMul, "silu_mul"}}},
		{"rope", ropeImage, []want{{&f.ropeCache, "rope_cache"}}},
		{"attention", attentionImage, []want{{&f.attention, "attention"}}},
		{"decode", decodeImage, []want{
			{&decode64, "decode_attention_64"}, {&decode128, "decode_attention_128"},
			{&turn64, "decode_turn_attention_64"}, {&turn128, "decode_turn_attention_128"}}},
		{"matmul", matmulImage, []want{{&f.matmul, "matmul_bf16"}, {&f.matmulFloat, "matmul_f32"}}},
		{"sample", sampleImage, []want{{&f.pick, "pick"}, {&f.done, "done"}}},
		{"fill", fillImage, []want{{&f.fill, "fill"}}},
	} {
		module, err := cu.LoadData(m.image)
		if err != nil {
			return fmt.Errorf("module %s: %w", m.file, err)
		}
		for _, w := range m.want {
			if *w.fn, err = module.Function(w.name); err != nil {
				return fmt.Errorf("module %s: kernel %s: %w", m.file, w.name, err)
			}
		}
	}
	f.decode = map[int]cu.Function{64: decode64, 128: decode128}
	f.turnDecode = map[int]cu.Function{64: turn64, 128: turn128}
	return f.loadGemm()
}

// loadGemm reads the kernels of src/gemm.cu, which need more shared memory than a
// kernel gets by itself.
func (f *functions) loadGemm() error {
	module, err := cu.LoadData(gemmImage)
	if err != nil {
		return fmt.Errorf("module gemm: %w", err)
	}
	for mode, name := range [gemmModes]string{"gemm_plain", "gemm_float", "gemm_gated", "gemm_residual"} {
		for i, rows := range gemmRows {
			fn := &f.gemm[mode][i]
			if *fn, err = module.Function(fmt.Sprintf("%s_%d", name, rows)); err != nil {
				return fmt.Errorf("module gemm: %s_%d: %w", name, rows, err)
			}
			if err := driver.AllowShared(*fn, gemmShared[i]); err != nil {
				return fmt.Errorf("module gemm: %s_%d: %w", name, rows, err)
			}
		}
	}
	return nil
}
