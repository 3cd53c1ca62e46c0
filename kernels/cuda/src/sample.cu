// pick finds the largest logit of each row, the lowest id among equals, and tells
// the host: tokens to pinned memory, then the step's number, which the host polls.
// blockIdx.x is the row, blockIdx.y a slice of the vocabulary.
#include "common.cuh"

// Result is what the host reads of a row.
struct Result {
    int token;
    int finite;  // 0: a logit is not finite
};

extern "C" __global__ void __launch_bounds__(1024)
    pick(const float *logits, int vocab, unsigned long long *best, int *bad, int *arrived, volatile Result *results,
         volatile unsigned long long *times, const unsigned long long *started, volatile int *flag, const int *step) {
    __shared__ unsigned long long part[32];
    ahead_done();
    let_next_start();
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
    if (threadIdx.x != 0) return;
    atomicMax(best + blockIdx.x, top);
    if (wrong) atomicOr(bad + blockIdx.x, 1);
    __threadfence();
    const int blocks = gridDim.x * gridDim.y;
    if (atomicAdd(arrived, 1) != blocks - 1) return;
    __threadfence();
    *arrived = 0;
    for (int r = 0; r < gridDim.x; r++) {
        results[r].token = 0xffffffffu - (unsigned int)(__ldcg(best + r) & 0xffffffffu);
        results[r].finite = !__ldcg(bad + r);
        best[r] = 0, bad[r] = 0;
    }
    unsigned long long t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    times[0] = *started, times[1] = t;
    __threadfence_system();
    *flag = *step;
}

// done is pick for a step without logits.
extern "C" __global__ void done(volatile unsigned long long *times, const unsigned long long *started, volatile int *flag,
                                const int *step) {
    ahead_done();
    unsigned long long t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    times[0] = *started, times[1] = t;
    __threadfence_system();
    *flag = *step;
}
