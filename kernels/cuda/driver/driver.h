// The CUDA driver, found at run time instead of at link time.
#ifndef WAYBILL_DRIVER_H
#define WAYBILL_DRIVER_H
#include <stddef.h>

// Opens libcuda.so.1, fills the table behind every cu* symbol, calls cuInit.
// Returns a CUresult, or -1 when the library is not there (text in err).
int driver_load(char *err, size_t n);
#endif
