//go:build cuda

package cuda

import (
	"fmt"

	"gorgonia.org/cu"

	"waybill/kernels/cuda/driver"
)

// functions are the kernels, by the names in their sources.
type functions struct {
	bind                            cu.Function
	copyRows, rmsNorm, addRMSNorm   cu.Function
	siluMul, ropeCache              cu.Function
	attention                       cu.Function
	decode64, decode128             cu.Function
	matmul, matmulFloat             cu.Function
	stream, streamFloat, streamGate [3]cu.Function // for 8, 16 and 32 rows
	pick, done, fill                cu.Function
}

// streamRows are the row counts that the kernels of src/stream.cu are made for.
var streamRows = [3]int{8, 16, 32}

// streamShared is the dynamic shared memory of src/stream.cu: 8 stages of two
// 16-byte pieces for 256 threads.
const streamShared = 8 * 2 * 16 * 256

// load reads all modules. Unknown names are errors of the build.
func (f *functions) load() error {
	type want struct {
		fn   *cu.Function
		name string
	}
	for _, m := range []struct {
		file, image string
		want        []want
	}{
		{"bind", bindImage, []want{{&f.bind, "bind"}}},
		{"rows", rowsImage, []want{{&f.copyRows, "copy_rows"}, {&f.rmsNorm, "rms_norm"}, {&f.addRMSNorm, "add_rms_norm"}, {&f.siluMul, "silu_mul"}}},
		{"rope", ropeImage, []want{{&f.ropeCache, "rope_cache"}}},
		{"attention", attentionImage, []want{{&f.attention, "attention"}}},
		{"decode", decodeImage, []want{{&f.decode64, "decode_attention_64"}, {&f.decode128, "decode_attention_128"}}},
		{"matmul", matmulImage, []want{{&f.matmul, "matmul_bf16"}, {&f.matmulFloat, "matmul_f32"}}},
		{"stream", streamImage, []want{
			{&f.stream[0], "stream_8"}, {&f.stream[1], "stream_16"}, {&f.stream[2], "stream_32"},
			{&f.streamFloat[0], "stream_8_f32"}, {&f.streamFloat[1], "stream_16_f32"}, {&f.streamFloat[2], "stream_32_f32"},
			{&f.streamGate[0], "stream_8_gated"}, {&f.streamGate[1], "stream_16_gated"}, {&f.streamGate[2], "stream_32_gated"}}},
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
	for _, set := range [][3]cu.Function{f.stream, f.streamFloat, f.streamGate} {
		for _, fn := range set {
			if err := driver.AllowShared(fn, streamShared); err != nil {
				return fmt.Errorf("module stream: %w", err)
			}
		}
	}
	return nil
}
