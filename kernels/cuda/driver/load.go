//go:build cuda

// Package driver holds what gorgonia.org/cu lacks: the driver found at run time,
// stream capture and graph launch, launches with attributes, pinned memory, and
// cuBLASLt and the attention library opened with dlopen.
package driver

/*
#cgo LDFLAGS: -ldl
#include <cuda.h>
#include "driver.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"sync"

	"waybill/kernels"
)

// ErrNoDriver means that this machine has no NVIDIA driver library.
var ErrNoDriver = errors.New("no CUDA driver")

var (
	loadOnce sync.Once
	loadErr  error
)

// Load opens the driver. Nothing of package cu may be called before it has
// returned nil; until then every cu call fails with NotInitialized.
func Load() error {
	loadOnce.Do(func() {
		var msg [256]C.char
		switch r := C.driver_load(&msg[0], C.size_t(len(msg))); {
		case r < 0:
			loadErr = fmt.Errorf("%w: %s", ErrNoDriver, C.GoString(&msg[0]))
		default:
			loadErr = check(C.CUresult(r), "cuInit")
		}
	})
	return loadErr
}

func check(r C.CUresult, what string) error {
	switch r {
	case C.CUDA_SUCCESS:
		return nil
	case C.CUDA_ERROR_OUT_OF_MEMORY:
		return fmt.Errorf("%s: %w", what, kernels.ErrOutOfMemory)
	}
	var name *C.char
	if C.cuGetErrorName(r, &name) != C.CUDA_SUCCESS {
		return fmt.Errorf("%s: error %d", what, int(r))
	}
	return fmt.Errorf("%s: %s (%d)", what, C.GoString(name), int(r))
}
