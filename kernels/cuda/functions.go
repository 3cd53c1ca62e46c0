//go:build cuda

package cuda

import (
	"fmt"

	"gorgonia.org/cu"
)

// functions are the kernels, by the names in their sources.
type functions struct {
	bind                    cu.Function
	copyRows, copyRowsFloat cu.Function
	rmsNorm, rmsNormFloat   cu.Function
	addRMSNorm, scaleRows   cu.Function
	siluMul                 cu.Function
	ropeCache, ropeFloat    cu.Function
	ropeFloat128            cu.Function
	attention               cu.Function
	decode                  map[int]cu.Function // by head width
	turnDecode, turnFloat   map[int]cu.Function
	matmul, matmulFloat     cu.Function
	stream, streamSmall     [streamModes][len(streamRows)]cu.Function                // by rows
	wide                    [streamModes][len(wideRows)][len(wideSplits)]cu.Function // likewise, and by blocks that share k
	pick, done, fill, draw  cu.Function
	gated                   cu.Function
}

// The modes of src/product.cuh.
const (
	streamPlain = iota
	streamFloat
	streamGated
	streamResidual
	streamModes
)

// modeNames are the modes' names in those of kernels.
var modeNames = [streamModes]string{"plain", "float", "gated", "residual"}

// streamRows are the row counts that the kernels of src/stream.cu are made for.
var streamRows = [...]int{8, maxStreamRows}

const maxStreamRows = 16

// load reads all modules. Unknown names are errors of the build.
func (f *functions) load() error {
	var decode64, decode128, turn64, turn128, float64, float128 cu.Function
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
		{"rope", ropeImage, []want{{&f.ropeCache, "rope_cache"}, {&f.ropeFloat, "rope_cache_float"}, {&f.ropeFloat128, "rope_cache_float_128"}}},
		{"attention", attentionImage, []want{{&f.attention, "attention"}}},
		{"decode", decodeImage, []want{
			{&decode64, "decode_attention_64"}, {&decode128, "decode_attention_128"},
			{&turn64, "decode_turn_attention_64"}, {&turn128, "decode_turn_attention_128"},
			{&float64, "decode_turn_float_attention_64"}, {&float128, "decode_turn_float_attention_128"}}},
		{"matmul", matmulImage, []want{{&f.matmul, "matmul_bf16"}, {&f.matmulFloat, "matmul_f32"}}},
		{"sample", sampleImage, []want{{&f.pick, "pick"}, {&f.done, "done"}}},
		{"draw", drawImage, []want{{&f.draw, "draw"}}},
		{"fill", fillImage, []want{{&f.fill, "fill"}}},
		{"gated", gatedImage, []want{{&f.gated, "gated"}}},
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
	f.turnFloat = map[int]cu.Function{64: float64, 128: float128}
	if err := f.loadStream(); err != nil {
		return err
	}
	return f.loadWide()
}

// loadStream reads the kernels of src/stream.cu.
func (f *functions) loadStream() error {
	module, err := cu.LoadData(streamImage)
	if err != nil {
		return fmt.Errorf("module stream: %w", err)
	}
	for mode, name := range modeNames {
		for i, rows := range streamRows {
			if f.stream[mode][i], err = module.Function(fmt.Sprintf("stream_%s_%d", name, rows)); err != nil {
				return fmt.Errorf("module stream: %s, %d rows: %w", name, rows, err)
			}
			if f.streamSmall[mode][i], err = module.Function(fmt.Sprintf("stream_%s_small_%d", name, rows)); err != nil {
				return fmt.Errorf("module stream: %s of small weights, %d rows: %w", name, rows, err)
			}
		}
	}
	return nil
}

// loadWide reads the kernels of src/wide.cu.
func (f *functions) loadWide() error {
	module, err := cu.LoadData(wideImage)
	if err != nil {
		return fmt.Errorf("module wide: %w", err)
	}
	for mode, name := range modeNames {
		for i, rows := range wideRows {
			for j, split := range wideSplits {
				if f.wide[mode][i][j], err = module.Function(fmt.Sprintf("wide_%s_%d_%d", name, rows, split)); err != nil {
					return fmt.Errorf("module wide: %s, %d rows, %d blocks: %w", name, rows, split, err)
				}
			}
		}
	}
	return nil
}
