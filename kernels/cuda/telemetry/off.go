//go:build !cuda

package telemetry

import "waybill/kernels"

// Open reports that this build has no CUDA in it.
func Open() (func() ([]kernels.GPUInfo, error), error) { return nil, ErrNotBuilt }
