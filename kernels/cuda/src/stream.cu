// y[m][n] = sum_k x[m][k] * w[n][k] for at most 32 rows of x: a decode step, where
// the time is that of reading w once.
//
// A block makes 16 columns; its 8 warps share k in steps of 32, in turns, so that
// the block reads 512 contiguous bytes of each of its rows at a time. w passes
// through a ring in shared memory that each thread fills and empties alone: 16-byte
// asynchronous copies many steps ahead, no barrier. The ring is filled before the
// kernel ahead has ended, since weights never change. As in decode.cu the 8
// elements that a thread loads are called the ones that the instruction assigns to
// it, for w (left operand) and x alike.
//
// n % 16 == 0, k % 32 == 0, rows 16-byte aligned.
#include "common.cuh"

constexpr int kWarps = 8, kThreads = kWarps * 32, kStages = 8;

static __device__ inline void copy_async(uint4 *dst, const bf16 *src) {
    const uint32_t d = (uint32_t)__cvta_generic_to_shared(dst);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(d), "l"(src) : "memory");
}

static __device__ inline void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// NT tiles of 8 rows of x. With kGated the block makes 8 columns of silu(gate) * up:
// its 16 rows of w are 8 of each half.
template <int NT, bool kGated, typename T>
static __device__ void stream(T *y, const bf16 *x, const bf16 *w, const float *bias, int m, int n, int k) {
    extern __shared__ uint4 ring[];  // [kStages][2][kThreads]
    const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32, g = lane / 4, quad = lane % 4;
    const int first = kGated ? blockIdx.x * 8 : blockIdx.x * 16;
    const bf16 *w0 = w + (size_t)(first + g) * k + quad * 8;
    const bf16 *w1 = w + (size_t)(first + g + (kGated ? n / 2 : 8)) * k + quad * 8;
    const int steps = k / 32;
    auto fill = [&](int step, int stage) {
        if (step < steps) {
            copy_async(&ring[(stage * 2) * kThreads + tid], w0 + (size_t)step * 32);
            copy_async(&ring[(stage * 2 + 1) * kThreads + tid], w1 + (size_t)step * 32);
        }
        commit();
    };
#pragma unroll
    for (int i = 0; i < kStages; i++) fill(warp + i * kWarps, i);
    let_next_start();
    ahead_done();

    const bf16 *xp[NT];
#pragma unroll
    for (int t = 0; t < NT; t++) xp[t] = x + (size_t)min(t * 8 + g, m - 1) * k + quad * 8;
    float acc[NT][4] = {};
    uint4 next[NT];
    if (warp < steps) {
#pragma unroll
        for (int t = 0; t < NT; t++) next[t] = *reinterpret_cast<const uint4 *>(xp[t] + (size_t)warp * 32);
    }
    int stage = 0;
    for (int step = warp; step < steps; step += kWarps) {
        uint4 b[NT];
#pragma unroll
        for (int t = 0; t < NT; t++) b[t] = next[t];
        if (step + kWarps < steps) {
#pragma unroll
            for (int t = 0; t < NT; t++) next[t] = *reinterpret_cast<const uint4 *>(xp[t] + (size_t)(step + kWarps) * 32);
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
    constexpr int kOut = kGated ? 8 : 16;
    for (int i = tid; i < NT * 8 * kOut; i += kThreads) {
        const int row = i / kOut, col = i % kOut;
        if (row >= m) break;
        float sum = 0.f, up = 0.f;
#pragma unroll
        for (int v = 0; v < kWarps; v++) {
            sum += part[(v * NT * 8 + row) * 16 + col];
            if (kGated) up += part[(v * NT * 8 + row) * 16 + col + 8];
        }
        if (kGated) {
            store1(y + (size_t)row * (n / 2) + first + col, silu(sum) * up);
        } else {
            store1(y + (size_t)row * n + first + col, sum + (bias ? bias[first + col] : 0.f));
        }
    }
}

#define STREAM(NAME, NT, GATED, T)                                                                               \
    extern "C" __global__ void __launch_bounds__(256, NT < 4 ? 3 : 2)                                             \
        NAME(T *y, const bf16 *x, const bf16 *w, const float *bias, int m, int n, int k) {                        \
        stream<NT, GATED>(y, x, w, bias, m, n, k);                                                               \
    }
STREAM(stream_8, 1, false, bf16)
STREAM(stream_16, 2, false, bf16)
STREAM(stream_32, 4, false, bf16)
STREAM(stream_8_f32, 1, false, float)
STREAM(stream_16_f32, 2, false, float)
STREAM(stream_32_f32, 4, false, float)
STREAM(stream_8_gated, 1, true, bf16)
STREAM(stream_16_gated, 2, true, bf16)
STREAM(stream_32_gated, 4, true, bf16)
