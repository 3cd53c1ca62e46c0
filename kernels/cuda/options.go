package cuda

import (
	"errors"
	"time"
)

// Options say which device to use.
type Options struct {
	// Device is the GPU's number, as the driver counts.
	Device int
	// StreamRows is the largest number of rows for which products are streamed
	// by src/stream.cu and src/wide.cu instead of left to cuBLASLt; 0 means what is best on
	// an H200. For measurements.
	StreamRows int
	// GatedShare is how well a product of gate and up with many rows must fill the
	// multiprocessors for the kernel that does the activation, too, to take it instead of
	// cuBLASLt; 0 means what is best on an H200, a very large number never. For measurements
	// and tests.
	GatedShare float64
	// FirstTakes is how much of a recorded step can be queued ahead of its tokens, by an
	// estimate; 0 means what is best on an H200. For tests.
	FirstTakes time.Duration
	// Sync waits for every kernel and records no step, which is slow: an error of the
	// device then names its op.
	Sync bool
	// Fault, if not nil, is asked before memory is made ("allocate") and before a step
	// is queued ("step"); its error is taken for the device's, except ErrStray: then the
	// step reads where no memory is. For tests.
	Fault func(what string) error
}

// ErrStray makes a step fail on the device. See Options.Fault.
var ErrStray = errors.New("a stray address")

// ErrNotBuilt says that the program was built without the tag cuda.
var ErrNotBuilt = errors.New("this binary was built without CUDA: run `make cuda` and use bin/waybill-cuda, or --device cpu")

// ErrNoGPU says that there is no GPU that the kernels run on.
var ErrNoGPU = errors.New("no supported GPU")
