//go:build !cuda

package cuda

import "waybill/kernels"

// Open reports that this build has no CUDA in it.
func Open(Options) (kernels.Backend, error) { return nil, ErrNotBuilt }
