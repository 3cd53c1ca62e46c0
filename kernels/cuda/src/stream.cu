// y[m][n] = sum_k x[m][k] * w[n][k] for at most 16 rows of x: a decode step, where
// the time is that of reading w once.
//
// A block makes 16 columns; its 8 warps share k in steps of 32, in turns, so that
// the block reads 512 contiguous bytes of each of its rows at a time. w passes
// through a ring in shared memory that each thread fills and empties alone: 16-byte
// asynchronous copies several steps ahead, no barrier. The ring is filled before the
// kernel ahead has ended, since weights never change, and is small enough for blocks
// of two kernels to share a multiprocessor. As in decode.cu the 8 elements that a
// thread loads are called the ones that the instruction assigns to it, for w (left
// operand) and x alike. Blocks begin at different places of k (turn), lest all ask
// for addresses of one remainder at once: worth a tenth of the bandwidth. Gated: 8 of the 16 columns are gates, 8 the ups to them.
//
// n % 32 == 0, k % 32 == 0, rows 16-byte aligned.
#include "product.cuh"

constexpr int kWarps = 8, kThreads = kWarps * 32, kStages = 4;

template <int NT, int kMode>
static __device__ void stream(const Product &p) {
    __shared__ uint4 ring[kStages * 2 * kThreads];
    const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32, g = lane / 4, quad = lane % 4, k = p.k;
    const int first = kMode == kGated ? blockIdx.x * 8 : blockIdx.x * 16;
    const bf16 *w0 = p.w + (size_t)(first + g) * k + quad * 8;
    const bf16 *w1 = p.w + (size_t)(first + g + (kMode == kGated ? p.n / 2 : 8)) * k + quad * 8;
    const int steps = k / 32;
    const int start = (int)((unsigned)blockIdx.x * p.turn % steps);
    auto place = [&](int step) { return (size_t)(step + start < steps ? step + start : step + start - steps) * 32; };
    auto fill = [&](int step, int stage) {
        if (step < steps) {
            copy_async(&ring[(stage * 2) * kThreads + tid], w0 + place(step));
            copy_async(&ring[(stage * 2 + 1) * kThreads + tid], w1 + place(step));
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
#pragma unroll
    for (int i = 0; i < kStages; i++) fill(warp + i * kWarps, i);
    let_next_start();
    ahead_done();

    const bf16 *xp[NT];
#pragma unroll
    for (int t = 0; t < NT; t++) xp[t] = p.x + (size_t)min(t * 8 + g, p.m - 1) * k + quad * 8;
    float acc[NT][4] = {};
    uint4 next[NT];
    if (warp < steps) {
#pragma unroll
        for (int t = 0; t < NT; t++) next[t] = *reinterpret_cast<const uint4 *>(xp[t] + place(warp));
    }
    int stage = 0;
    for (int step = warp; step < steps; step += kWarps) {
        uint4 b[NT];
#pragma unroll
        for (int t = 0; t < NT; t++) b[t] = next[t];
        if (step + kWarps < steps) {
#pragma unroll
            for (int t = 0; t < NT; t++) next[t] = *reinterpret_cast<const uint4 *>(xp[t] + place(step + kWarps));
        }
        asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 1) : "memory");
        const uint4 lo = ring[(stage * 2) * kThreads + tid], hi = ring[(stage * 2 + 1) * kThreads + tid];
#pragma unroll
        for (int t = 0; t < NT; t++) {
            mma(acc[t], lo.x, hi.x, lo.y, hi.y, b[t].x, b[t].y);
            mma(acc[t], lo.z, hi.z, lo.w, hi.w, b[t].z, b[t].w);
        }
        fill(step + kStages * kWarps, stage);
        stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    // acc[t]: columns (of w) g and g + 8, rows (of x) 8t + 2 quad and the next.
    float *part = reinterpret_cast<float *>(ring);  // [kWarps][NT * 8 rows][16 columns]
#pragma unroll
    for (int t = 0; t < NT; t++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            part[(warp * NT * 8 + t * 8 + quad * 2 + (i & 1)) * 16 + g + (i >> 1) * 8] = acc[t][i];
    __syncthreads();
    auto total = [&](int row, int col) {
        float sum = 0.f;
#pragma unroll
        for (int v = 0; v < kWarps; v++) sum += part[(v * NT * 8 + row) * 16 + col];
        return sum;
    };
    if (kMode == kResidual && blockIdx.x == 0 && tid < p.m) p.sums_zero[tid] = 0;
    if constexpr (kMode == kGated) {  // NT * 128 outputs, at most one a thread
        const int row = tid / 8, col = tid % 8;
        if (row >= p.m) return;
        const float f = factor(p, row);
        store1((bf16 *)p.y + (size_t)row * (p.n / 2) + first + col, silu(total(row, col) * f) * (total(row, col + 8) * f));
    } else {
        const int row = tid / 16, col = tid % 16;
        float square = 0.f;
        if (row < p.m) square = finish<kMode>(p, row, first + col, total(row, col));
        if (kMode == kResidual) {
            for (int d = 8; d > 0; d >>= 1) square += __shfl_xor_sync(0xffffffffu, square, d);
            if (row < p.m && col == 0) atomicAdd(p.sums + row, __float2ull_rn(square * kFixed));
        }
    }
}

#define STREAM(NAME, MODE)                                                                                     \
    extern "C" __global__ void __launch_bounds__(256, 4) NAME##_8(const Product p) { stream<1, MODE>(p); }      \
    extern "C" __global__ void __launch_bounds__(256, 4) NAME##_16(const Product p) { stream<2, MODE>(p); }
STREAM(stream_plain, kPlain)
STREAM(stream_float, kFloat)
STREAM(stream_gated, kGated)
STREAM(stream_residual, kResidual)
