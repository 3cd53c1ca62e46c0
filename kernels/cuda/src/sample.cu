// pick finds the largest logit of each row, the lowest id among equals, and tells
// the host. blockIdx.x is the row, blockIdx.y a slice of the vocabulary.
//
// Every word of the report holds the step's number beside a value, in 8 bytes that are
// written at once, so the host knows of each by itself whether it is there. One flag
// behind all results would need them to be ordered across the bus: a fence, 2.3 us.
#include "common.cuh"

// Words of the report, as in ../step.go.
enum { kEnded, kStarted = kEnded + 2, kRows = kStarted + 2 };

constexpr unsigned kNotFinite = 0xffffffffu;  // in place of a token

__device__ inline void tell(unsigned long long *word, unsigned value, int step) {
    *(volatile unsigned long long *)word = (unsigned long long)(unsigned)step << 32 | value;
}

__device__ inline unsigned long long device_time() {
    unsigned long long t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}

// fence says that kernels of the step before this one wrote results of their own, which
// must be there before the report is.
extern "C" __global__ void __launch_bounds__(1024)
    pick(const float *logits, int vocab, unsigned long long *best, int *bad, int *arrived, unsigned long long *report,
         const unsigned long long *started, const int *number, int fence) {
    __shared__ unsigned long long part[32];
    ahead_done();
    let_next_start();
    const int step = *number;
    const unsigned long long began = *started;
    const float *row = logits + (size_t)blockIdx.x * vocab;
    const int slice = (vocab + gridDim.y - 1) / gridDim.y, from = blockIdx.y * slice, to = min(vocab, from + slice);
    unsigned long long top = 0;
    bool wrong = false;
    for (int i = from + threadIdx.x; i < to; i += blockDim.x) {
        const float f = row[i];
        wrong |= !isfinite(f);
        const unsigned long long key = (unsigned long long)order(f) << 32 | (0xffffffffu - i);
        top = key > top ? key : top;
    }
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) {
        const unsigned long long other = __shfl_xor_sync(0xffffffffu, top, d);
        top = other > top ? other : top;
    }
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = top;
    wrong = __syncthreads_or(wrong);
    if (threadIdx.x >= 32) return;
    top = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) {
        const unsigned long long other = __shfl_xor_sync(0xffffffffu, top, d);
        top = other > top ? other : top;
    }
    int last = 0;
    if (threadIdx.x == 0) {
        atomicMax(best + blockIdx.x, top);
        if (wrong) atomicOr(bad + blockIdx.x, 1);
        __threadfence();
        last = atomicAdd(arrived, 1) == gridDim.x * gridDim.y - 1;
        __threadfence();
    }
    if (!__shfl_sync(0xffffffffu, last, 0)) return;
    // One after another, 32 rows took 10 us.
    for (int r = threadIdx.x; r < gridDim.x; r += 32) {
        const unsigned token = 0xffffffffu - (unsigned)(__ldcg(best + r) & 0xffffffffu);
        tell(report + kRows + r, __ldcg(bad + r) ? kNotFinite : token, step);
        best[r] = 0, bad[r] = 0;
    }
    if (threadIdx.x == 0) *arrived = 0;
    if (fence) __threadfence_system();
    __syncwarp();
    const unsigned long long ended = __shfl_sync(0xffffffffu, device_time(), 0);
    if (threadIdx.x < 4) {
        const unsigned long long t = threadIdx.x < kStarted ? ended : began;
        tell(report + threadIdx.x, threadIdx.x % 2 ? t >> 32 : t, step);
    }
}

// done is pick for a step without logits.
extern "C" __global__ void done(unsigned long long *report, const unsigned long long *started, const int *number) {
    ahead_done();
    const int step = *number;
    const unsigned long long began = *started, ended = device_time();
    tell(report + kEnded, ended, step), tell(report + kEnded + 1, ended >> 32, step);
    tell(report + kStarted, began, step), tell(report + kStarted + 1, began >> 32, step);
}
