//go:build cuda

package cuda

import _ "embed"

// The compiled kernels, one fatbin per source file with code for sm_80, sm_90a and
// sm_100, and the attention library. `make cuda` writes them.
var (
	//go:embed out/attention.fatbin
	attentionImage string
	//go:embed out/bind.fatbin
	bindImage string
	//go:embed out/decode.fatbin
	decodeImage string
	//go:embed out/draw.fatbin
	drawImage string
	//go:embed out/fill.fatbin
	fillImage string
	//go:embed out/gated.fatbin
	gatedImage string
	//go:embed out/matmul.fatbin
	matmulImage string
	//go:embed out/rope.fatbin
	ropeImage string
	//go:embed out/rows.fatbin
	rowsImage string
	//go:embed out/sample.fatbin
	sampleImage string
	//go:embed out/stream.fatbin
	streamImage string
	//go:embed out/wide.fatbin
	wideImage string
	//go:embed out/libattn.so
	attnImage []byte
)
