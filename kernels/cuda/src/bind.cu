// The step's tables travel in one piece: the host writes them to pinned memory and
// this kernel, the first of a step, copies them. Word 0 of src is the number of
// words. Reading pinned memory costs a microsecond of latency, so the first piece
// is read before its length is known. It also clears the sums of squares of the
// step's norms (stream.cu).
//
// The kernel may be queued before the tables are complete: it waits until word
// kGate is not 0, which the host writes last.
//
// It does not let the next kernel start: none does before all its blocks have ended, so
// every kernel may read the tables, and keys and values of earlier steps, ahead of
// ahead_done(). decode.cu does.
#include "common.cuh"

constexpr int kAtOnce = 8;  // reads under way behind the first piece
constexpr int kGate = 3;

extern "C" __global__ void __launch_bounds__(256)
    bind(uint4 *dst, const uint4 *src, unsigned long long *started, int words_max, unsigned long long *sums, int sum_count) {
    ahead_done();
    if (threadIdx.x == 0) {
        int open;
        do asm volatile("ld.acquire.sys.global.s32 %0, [%1];" : "=r"(open) : "l"((const int *)src + kGate) : "memory");
        while (open == 0);
    }
    __syncthreads();
    const int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    uint4 first = make_uint4(0, 0, 0, 0);
    if (i * 4 < words_max) first = __ldcv(src + i);
    const int words = __ldcv(src).x;
    if (i == 0) {
        unsigned long long t;
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
        *started = t;
    }
    if (i < sum_count) sums[i] = 0;
    if (i * 4 < words) dst[i] = first;
    for (int k = i + n; k * 4 < words; k += kAtOnce * n) {
        uint4 v[kAtOnce];
#pragma unroll
        for (int j = 0; j < kAtOnce; j++)
            if ((k + j * n) * 4 < words) v[j] = __ldcv(src + k + j * n);
#pragma unroll
        for (int j = 0; j < kAtOnce; j++)
            if ((k + j * n) * 4 < words) dst[k + j * n] = v[j];
    }
    __threadfence();  // before the block ends, which is when others read
}
