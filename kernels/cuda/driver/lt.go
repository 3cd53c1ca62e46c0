//go:build cuda

package driver

/*
#include "lt.h"

#cgo noescape lt_run
#cgo nocallback lt_run
*/
import "C"

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"

	"waybill/kernels"
)

// Lt is a cuBLASLt handle for one device.
type Lt struct{ handle unsafe.Pointer }

// OpenLt opens libcublasLt and makes a handle for the current context's device.
func OpenLt() (*Lt, error) {
	var msg [256]C.char
	l := new(Lt)
	switch r := C.lt_open(&l.handle, &msg[0], C.size_t(len(msg))); {
	case r < 0:
		return nil, fmt.Errorf("cuBLASLt: %s", C.GoString(&msg[0]))
	case r > 0:
		return nil, ltError("create", r)
	}
	return l, nil
}

func ltError(what string, r C.int) error {
	const allocFailed = 3 // CUBLAS_STATUS_ALLOC_FAILED
	switch r {
	case 0:
		return nil
	case allocFailed:
		return fmt.Errorf("cuBLASLt %s: %w", what, kernels.ErrOutOfMemory)
	}
	return fmt.Errorf("cuBLASLt %s: status %d", what, int(r))
}

// Version returns the library's version, such as 130100.
func (l *Lt) Version() int { return int(C.lt_version()) }

// LtShape names a product y[M][N] = sum_K x[M][K]*w[N][K], optionally plus a bias
// [N]. x and w are bf16, y and bias too, or, with Float, float32. Add says that the
// product is added to y.
type LtShape struct {
	M, N, K          int
	Float, Bias, Add bool
}

// LtPlan is a chosen algorithm. It belongs to the step's thread.
type LtPlan struct {
	lt  *Lt
	p   C.lt_plan
	add C.int
}

// Plan asks the library for its best algorithm within maxWorkspace bytes.
func (l *Lt) Plan(s LtShape, maxWorkspace int) (*LtPlan, error) {
	p := &LtPlan{lt: l, add: flag(s.Add)}
	out := C.int(C.lt_type_bf16)
	if s.Float {
		out = C.lt_type_32f
	}
	r := C.lt_plan_make(l.handle, &p.p, C.uint64_t(s.M), C.uint64_t(s.N), C.uint64_t(s.K), out, flag(s.Bias),
		C.size_t(maxWorkspace))
	if r != 0 {
		return nil, ltError(fmt.Sprintf("plan %+v", s), r)
	}
	return p, nil
}

// LtIO is the memory of one product; Bias may be 0 if the plan has none.
type LtIO struct{ X, W, Bias, Y, Workspace cu.DevicePtr }

// Run queues the product of m rows on s; m may differ from the plan's.
func (p *LtPlan) Run(m int, io LtIO, s cu.Stream) error {
	return ltError("matmul", C.lt_run(p.lt.handle, &p.p, C.uint64_t(m), C.uint64_t(io.X), C.uint64_t(io.W), C.uint64_t(io.Bias),
		C.uint64_t(io.Y), p.add, C.uint64_t(io.Workspace), unsafe.Pointer(s.C())))
}

// Close frees the plan.
func (p *LtPlan) Close() { C.lt_plan_free(&p.p) }
