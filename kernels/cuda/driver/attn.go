//go:build cuda

package driver

/*
#include "attn_load.h"

#cgo noescape attn_run_plan
#cgo nocallback attn_run_plan

static attn_io io_of(unsigned long long q, unsigned long long k, unsigned long long v, unsigned long long qo,
	unsigned long long kv, unsigned long long idx, unsigned long long last, unsigned long long out) {
	return (attn_io){
		.q = (void *)q, .k_pages = (void *)k, .v_pages = (void *)v, .qo_indptr = (void *)qo, .kv_indptr = (void *)kv,
		.kv_indices = (void *)idx, .kv_last_len = (void *)last, .out = (void *)out,
	};
}
*/
import "C"

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"

	"waybill/kernels"
)

// LoadAttn opens the attention library from its bytes.
func LoadAttn(image []byte) error {
	var msg [256]C.char
	if C.attn_load(unsafe.Pointer(&image[0]), C.size_t(len(image)), &msg[0], C.size_t(len(msg))) != 0 {
		return fmt.Errorf("attention library: %s", C.GoString(&msg[0]))
	}
	return nil
}

// Attn plans and runs attention of several query rows per sequence over a paged
// cache, bf16. One plan serves all layers of a step. It belongs to the step's
// thread.
type Attn struct {
	// Hopper takes the wgmma kernel, for heads of 128 elements.
	Hopper bool
	// Batch counts sequences, Rows query rows; QStride is the distance of two
	// rows of q in elements.
	Batch, Rows, QHeads, KVHeads, HeadDim, PageSize, QStride int
	// Scale multiplies q·k.
	Scale float32
	// FloatWS and IntWS are device memory for partial results and the plan, and
	// IntWSHost is pinned memory as long as IntWS.
	FloatWS, IntWS           cu.DevicePtr
	FloatWSBytes, IntWSBytes int
	IntWSHost                unsafe.Pointer

	plan C.attn_plan
}

// AttnIO is the memory of one layer's attention. The arrays are int32: QOIndptr
// and KVIndptr [Batch+1], KVLastLen [Batch].
type AttnIO struct {
	Q, K, V, Out                             cu.DevicePtr
	QOIndptr, KVIndptr, KVIndices, KVLastLen cu.DevicePtr
}

func (a *Attn) shape(s cu.Stream) C.attn_shape {
	sh := C.attn_shape{
		batch: C.int32_t(a.Batch), q_heads: C.int32_t(a.QHeads), kv_heads: C.int32_t(a.KVHeads),
		head_dim: C.int32_t(a.HeadDim), page_size: C.int32_t(a.PageSize), rows: C.int32_t(a.Rows),
		q_stride: C.int64_t(a.QStride), sm_scale: C.float(a.Scale), float_ws_bytes: C.size_t(a.FloatWSBytes),
		int_ws_bytes: C.size_t(a.IntWSBytes), int_ws_host: a.IntWSHost, stream: unsafe.Pointer(s.C()),
	}
	// Device addresses travel as bits: they are no Go pointers.
	*(*uintptr)(unsafe.Pointer(&sh.float_ws)) = uintptr(a.FloatWS)
	*(*uintptr)(unsafe.Pointer(&sh.int_ws)) = uintptr(a.IntWS)
	return sh
}

func attnCheck(r C.int, what string) error {
	const noMemory = 2 // cudaErrorMemoryAllocation
	switch r {
	case 0:
		return nil
	case noMemory:
		return fmt.Errorf("attention %s: %w", what, kernels.ErrOutOfMemory)
	}
	return fmt.Errorf("attention %s: %s (%d)", what, C.GoString(C.attn_last()), int(r))
}

// Plan lays out the work for the given lengths and queues its upload on s. Lengths
// are on the host: qoIndptr and kvIndptr (in pages) [Batch+1], kvLen [Batch].
func (a *Attn) Plan(qoIndptr, kvIndptr, kvLen []int32, s cu.Stream) error {
	sh := a.shape(s)
	return attnCheck(C.attn_make_plan(flag(a.Hopper), &sh, (*C.int32_t)(&qoIndptr[0]), (*C.int32_t)(&kvIndptr[0]),
		(*C.int32_t)(&kvLen[0]), &a.plan), "plan")
}

// Run queues the planned attention of one layer on s.
func (a *Attn) Run(m AttnIO, s cu.Stream) error {
	sh := a.shape(s)
	io := C.io_of(C.ulonglong(m.Q), C.ulonglong(m.K), C.ulonglong(m.V), C.ulonglong(m.QOIndptr), C.ulonglong(m.KVIndptr),
		C.ulonglong(m.KVIndices), C.ulonglong(m.KVLastLen), C.ulonglong(m.Out))
	return attnCheck(C.attn_run_plan(flag(a.Hopper), &sh, &a.plan, &io), "run")
}

func flag(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
