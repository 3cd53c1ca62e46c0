//go:build cuda

package driver

/*
#include <cuda.h>
#include <stdint.h>
#include <string.h>

#cgo noescape launch
#cgo nocallback launch
#cgo noescape matrix_map
#cgo nocallback matrix_map
#cgo noescape pair_map
#cgo nocallback pair_map
#cgo noescape enter
#cgo nocallback enter

enum { max_args = 32 };

typedef struct {
	unsigned grid[3], block, shared;
	int dependent;
} shape;

// buf holds the arguments one after another, offsets says where each begins.
// The driver copies them during the call.
static CUresult launch(CUfunction f, CUstream s, const shape *d, const void *buf, const uint32_t *offsets, int n) {
	void *params[max_args];
	CUlaunchAttribute attrs[1];
	memset(attrs, 0, sizeof attrs);
	CUlaunchConfig c = {
		.gridDimX = d->grid[0], .gridDimY = d->grid[1], .gridDimZ = d->grid[2],
		.blockDimX = d->block, .blockDimY = 1, .blockDimZ = 1,
		.sharedMemBytes = d->shared, .hStream = s, .attrs = attrs, .numAttrs = 0,
	};
	if (n > max_args) return CUDA_ERROR_INVALID_VALUE;
	for (int i = 0; i < n; i++) params[i] = (char *)buf + offsets[i];
	if (d->dependent) {
		attrs[0].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
		attrs[0].value.programmaticStreamSerializationAllowed = 1;
		c.numAttrs = 1;
	}
	return cuLaunchKernelEx(&c, f, params, NULL);
}

static CUresult allow_shared(CUfunction f, int bytes) {
	return cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes);
}

static CUresult matrix_map(void *out, CUdeviceptr p, cuuint64_t rows, cuuint64_t cols, cuuint32_t box_rows, cuuint32_t box_cols,
                           int swizzled) {
	CUtensorMap m; // aligned, which Go's memory need not be
	const cuuint64_t size[2] = {cols, rows}, stride[1] = {2 * cols};
	const cuuint32_t box[2] = {box_cols, box_rows}, each[2] = {1, 1};
	CUresult r = cuTensorMapEncodeTiled(&m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)p, size, stride, box, each,
		CU_TENSOR_MAP_INTERLEAVE_NONE, swizzled ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
		CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
	if (!r) memcpy(out, &m, sizeof m);
	return r;
}

static CUresult pair_map(void *out, CUdeviceptr p, cuuint64_t rows, cuuint64_t cols, cuuint64_t apart, cuuint32_t box_rows, cuuint32_t box_cols) {
	CUtensorMap m;
	const cuuint64_t size[4] = {cols, 8, 2, rows / 16}, stride[3] = {2 * cols, 2 * cols * apart, 2 * cols * (apart == 8 ? 16 : 8)};
	const cuuint32_t box[4] = {box_cols, 8, 2, box_rows / 16}, each[4] = {1, 1, 1, 1};
	CUresult r = cuTensorMapEncodeTiled(&m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, (void *)p, size, stride, box, each,
		CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
	if (!r) memcpy(out, &m, sizeof m);
	return r;
}

// The context that enter made current on this thread, and the age in which it did.
static __thread CUcontext current;
static __thread unsigned current_age;
static unsigned age = 1;

static CUresult enter(CUcontext c) {
	if (current == c && current_age == __atomic_load_n(&age, __ATOMIC_ACQUIRE)) return CUDA_SUCCESS;
	CUresult r = cuCtxSetCurrent(c);
	if (!r) current = c, current_age = __atomic_load_n(&age, __ATOMIC_ACQUIRE);
	return r;
}

static void forget(void) { __atomic_add_fetch(&age, 1, __ATOMIC_ACQ_REL); }

static CUresult pinned(void **p, size_t n) { return cuMemHostAlloc(p, n, CU_MEMHOSTALLOC_PORTABLE); }
*/
import "C"

import (
	"encoding/binary"
	"math"
	"unsafe"

	"gorgonia.org/cu"
)

// Args is a kernel's argument list. Reset and fill it again for the next launch:
// no allocation after the first use.
type Args struct {
	buf     []byte
	offsets []uint32
	fields  bool
}

// Reset empties the list.
func (a *Args) Reset() *Args {
	a.buf, a.offsets, a.fields = a.buf[:0], a.offsets[:0], false
	return a
}

// Struct empties the list and makes what follows the fields of one argument, a C
// struct.
func (a *Args) Struct() *Args { return a.Reset().Fields() }

// Fields makes what follows the fields of one more argument, a C struct whose size is a multiple of 8.
func (a *Args) Fields() *Args {
	a.fields = false
	a.add(8)
	a.fields = true
	return a
}

// add begins an argument at a multiple of align bytes.
func (a *Args) add(align int) {
	for len(a.buf)%align != 0 {
		a.buf = append(a.buf, 0)
	}
	if !a.fields {
		a.offsets = append(a.offsets, uint32(len(a.buf)))
	}
}

// Ptr appends an address.
func (a *Args) Ptr(p cu.DevicePtr) *Args { return a.Uint64(uint64(p)) }

// Uint64 appends an unsigned integer of 8 bytes.
func (a *Args) Uint64(v uint64) *Args {
	a.add(8)
	a.buf = binary.LittleEndian.AppendUint64(a.buf, v)
	return a
}

// Int appends a C int.
func (a *Args) Int(v int) *Args {
	a.add(4)
	a.buf = binary.LittleEndian.AppendUint32(a.buf, uint32(int32(v)))
	return a
}

// Float appends a C float.
func (a *Args) Float(v float32) *Args {
	a.add(4)
	a.buf = binary.LittleEndian.AppendUint32(a.buf, math.Float32bits(v))
	return a
}

// Map appends what a matrix is to the copy engine.
func (a *Args) Map(m *Map) *Args {
	a.add(8)
	a.buf = append(a.buf, m[:]...)
	return a
}

// Double appends a C double.
func (a *Args) Double(v float64) *Args { return a.Uint64(math.Float64bits(v)) }

// Shape says how a kernel is launched. Dependent allows it to start before the
// kernel ahead of it in the stream has ended; the kernel itself must then wait
// (griddepcontrol.wait) before it reads that kernel's results.
type Shape struct {
	// Grid is the number of blocks, Block that of threads in one.
	Grid  [3]int
	Block int
	// Shared is the dynamic shared memory in bytes.
	Shared    int
	Dependent bool
}

// Launch queues fn on s.
func (d *Shape) Launch(fn cu.Function, s cu.Stream, a *Args) error {
	var buf unsafe.Pointer
	var off *C.uint32_t
	if len(a.offsets) > 0 {
		buf, off = unsafe.Pointer(&a.buf[0]), (*C.uint32_t)(&a.offsets[0])
	}
	c := C.shape{block: C.unsigned(d.Block), shared: C.unsigned(d.Shared), dependent: flag(d.Dependent)}
	for i := range d.Grid {
		c.grid[i] = C.unsigned(max(1, d.Grid[i]))
	}
	return check(C.launch(function(fn), stream(s), &c, buf, off, C.int(len(a.offsets))), "launch")
}

// function unwraps a handle that cu keeps private; it is the struct's only field.
func function(fn cu.Function) C.CUfunction { return *(*C.CUfunction)(unsafe.Pointer(&fn)) }

// Map is a row-major bf16 matrix as the copy engine of compute capability 9.0 sees it (CUtensorMap).
type Map [128]byte

// Box is the part of a matrix that is copied at a time, in elements. Swizzled has rows of 128 bytes in shared memory,
// whose 16-byte pieces are permuted as the matrix units want them.
type Box struct {
	Rows, Cols int
	Swizzled   bool
}

// Describe sets m to the matrix p [rows, cols]. p and the length of its rows are multiples of 16 bytes. What boxes hold
// beyond its edges is read as zero and not written.
func (m *Map) Describe(p cu.DevicePtr, rows, cols int, box Box) error {
	return check(C.matrix_map(unsafe.Pointer(m), C.CUdeviceptr(p), C.cuuint64_t(rows), C.cuuint64_t(cols), C.cuuint32_t(box.Rows),
		C.cuuint32_t(box.Cols), flag(box.Swizzled)), "tensor map")
}

// DescribePairs is Describe with 8 rows from one place, 8 that are apart rows behind them, the next 8 from the first
// place, and so on. apart is 8, which is the plain order, or half of the rows. rows is a multiple of 16, and so are box's,
// which are always swizzled.
func (m *Map) DescribePairs(p cu.DevicePtr, rows, cols, apart int, box Box) error {
	return check(C.pair_map(unsafe.Pointer(m), C.CUdeviceptr(p), C.cuuint64_t(rows), C.cuuint64_t(cols), C.cuuint64_t(apart),
		C.cuuint32_t(box.Rows), C.cuuint32_t(box.Cols)), "tensor map")
}

// AllowShared raises a kernel's limit of dynamic shared memory above 48 KiB.
func AllowShared(fn cu.Function, bytes int) error {
	return check(C.allow_shared(function(fn), C.int(bytes)), "shared memory limit")
}

// Pinned allocates page-locked host memory, outside Go's heap. Free it with
// cu.MemFreeHost. Its address is valid on the device, too.
func Pinned(n int) (unsafe.Pointer, error) {
	var p unsafe.Pointer
	err := check(C.pinned(&p, C.size_t(n)), "pinned memory")
	return p, err
}

// Enter makes a context current on the calling thread, if it is not. Only this function
// may change a thread's context. The calling goroutine must be locked to its thread.
func Enter(ctx cu.CUContext) error { return check(C.enter(context(ctx)), "context") }

// Forget makes every thread's next Enter ask the driver: a context has been released.
func Forget() { C.forget() }

// context unwraps a handle that cu keeps private; it is the struct's only field.
func context(ctx cu.CUContext) C.CUcontext { return *(*C.CUcontext)(unsafe.Pointer(&ctx)) }
