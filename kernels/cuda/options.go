package cuda

import "errors"

// Options say which device to use.
type Options struct {
	// Device is the GPU's number, as the driver counts.
	Device int
	// StreamRows is the largest number of rows for which products are streamed
	// instead of left to cuBLASLt; 0 means what is best on an H200. For measurements.
	StreamRows int
}

// ErrNotBuilt says that the program was built without the tag cuda.
var ErrNotBuilt = errors.New("this binary was built without CUDA: run `make cuda` and use bin/waybill-cuda, or --device cpu")

// ErrNoGPU says that there is no GPU that the kernels run on.
var ErrNoGPU = errors.New("no supported GPU")
