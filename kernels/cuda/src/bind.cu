// The step's tables travel in one piece: the host writes them to pinned memory and
// this kernel, the first of a step, copies them. Word 0 of src is the number of
// words. Reading pinned memory costs a microsecond of latency, so the first piece
// is read before its length is known. It also clears the sums of squares of the
// step's norms (stream.cu).
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256)
    bind(uint4 *dst, const volatile uint4 *src, unsigned long long *started, int words_max,
         unsigned long long *sums, int sum_count) {
    ahead_done();
    let_next_start();
    const int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    uint4 first = make_uint4(0, 0, 0, 0);
    if (i * 4 < words_max) {
        first.x = src[i].x, first.y = src[i].y, first.z = src[i].z, first.w = src[i].w;
    }
    const int words = src[0].x;
    if (i == 0) {
        unsigned long long t;
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
        *started = t;
    }
    if (i < sum_count) sums[i] = 0;
    if (i * 4 < words) dst[i] = first;
    for (int k = i + n; k * 4 < words; k += n) {
        uint4 v;
        v.x = src[k].x, v.y = src[k].y, v.z = src[k].z, v.w = src[k].w;
        dst[k] = v;
    }
}
