// cuda.h as gorgonia.org/cu v0.9.6 expects it. Toolkit 13 renamed five calls to
// versions with more arguments; the driver still exports the old ones, so say
// their names. Put this folder before the toolkit's include folder.
#ifndef WAYBILL_CUDA_H
#define WAYBILL_CUDA_H
#include_next <cuda.h>

#if CUDA_VERSION >= 13000 && !defined(__CUDACC__) && !defined(__cplusplus)
#undef cuCtxCreate
#undef cuMemAdvise
#undef cuMemPrefetchAsync
#undef cuGraphAddDependencies
#undef cuGraphGetEdges
#define cuCtxCreate cuCtxCreate_v2
CUresult CUDAAPI cuCtxCreate_v2(CUcontext *ctx, unsigned int flags, CUdevice dev);
CUresult CUDAAPI cuMemAdvise(CUdeviceptr p, size_t n, CUmem_advise advice, CUdevice dev);
CUresult CUDAAPI cuMemPrefetchAsync(CUdeviceptr p, size_t n, CUdevice to, CUstream s);
CUresult CUDAAPI cuGraphAddDependencies(CUgraph g, const CUgraphNode *from, const CUgraphNode *to, size_t n);
CUresult CUDAAPI cuGraphGetEdges(CUgraph g, CUgraphNode *from, CUgraphNode *to, size_t *n);
#endif
#endif
