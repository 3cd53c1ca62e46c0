//go:build cuda

package driver

/*
#include <cuda.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

// Everything is left out that could be large, and the process is not ended.
static CUresult dump_exceptions(char *path) {
	bool on = true;
	int flags = CU_COREDUMP_LIGHTWEIGHT_FLAGS | CU_COREDUMP_SKIP_ABORT;
	size_t n = sizeof flags;
	CUresult r = cuCoredumpSetAttributeGlobal(CU_COREDUMP_GENERATION_FLAGS, &flags, &n);
	if (r) return r;
	n = strlen(path) + 1;
	r = cuCoredumpSetAttributeGlobal(CU_COREDUMP_FILE, path, &n);
	if (r) return r;
	n = sizeof on;
	return cuCoredumpSetAttributeGlobal(CU_COREDUMP_ENABLE_ON_EXCEPTION, &on, &n);
}
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// maxDumpPath is the driver's limit of a dump's path in bytes.
const maxDumpPath = 1023

// DumpExceptions makes the driver write a small core dump (package coredump) to path
// when a kernel of any context that is made later stops with an exception. It then
// waits for nothing and reports no error: who asked must watch path.
func DumpExceptions(path string) error {
	if len(path) > maxDumpPath {
		return fmt.Errorf("core dump: a path of %d bytes, at most %d", len(path), maxDumpPath)
	}
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	return check(C.dump_exceptions(p), "core dump")
}
