// y[m][n] = sum_k x[m][k] * w[n][k] for at most 64 rows of x: a decode step, where
// the time is that of reading w once.
//
// A block of 4 warps makes 64 columns, 16 a warp; k is shared out over the blocks of
// a cluster, which add their parts up through each other's shared memory. w and x
// pass through a ring in shared memory by 16-byte asynchronous copies. A thread
// copies the pieces of w that it uses itself; x is shared by the block. The ring's w
// is fetched before the kernel ahead has ended, since weights never change. As in
// decode.cu the 8 elements that a thread loads are called the ones that the
// instruction assigns to it, for w (left operand) and x alike.
//
// What follows a product in a decoder is done where its sums are, before anything is
// stored:
//   kGated     silu(gate) * up, from 8 rows of each half of w a warp
//   kResidual  residual += y; x of the next product = residual * norm weight; and the
//              row's sum of squares. The norm's factor of a row is a factor of the
//              next product's row, which applies it (sums_in).
// Squares are added in fixed point, so that the order does not matter to a bit.
//
// n % 64 == 0, k % (64 * cluster) == 0, rows 16-byte aligned.
#include "common.cuh"

constexpr int kWarps = 4, kThreads = kWarps * 32, kCols = 64, kStep = 64;
constexpr int kPlain = 0, kFloat = 1, kGated = 2, kResidual = 3;
constexpr float kFixed = 16777216.f;  // 2^24

struct Product {
    void *y;
    const bf16 *x, *w;
    const float *bias;
    int m, n, k;
    float *residual;
    const float *norm;              // of the norm that follows
    unsigned long long *sums;       // of squares of the new residual, per row
    unsigned long long *sums_zero;  // to be cleared for a later product
    const unsigned long long *sums_in;  // of x's norm, or null
    float eps;
};

static __device__ inline void copy_async(void *dst, const bf16 *src) {
    const uint32_t d = (uint32_t)__cvta_generic_to_shared(dst);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(d), "l"(src) : "memory");
}

static __device__ inline void cluster_sync() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// peer reads a float of the block of this rank in the cluster.
static __device__ inline float peer(const float *p, int rank) {
#if __CUDA_ARCH__ >= 900
    uint32_t a = (uint32_t)__cvta_generic_to_shared(p), b;
    float v;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(b) : "r"(a), "r"(rank));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(b) : "memory");
    return v;
#else
    return *p;
#endif
}

template <int NT, int kStages, int kMode>
static __device__ void gemm(const Product &p) {
    extern __shared__ uint4 shared[];
    constexpr int kRows = NT * 8;
    uint4 *wring = shared;                                // [kStages][4][kThreads]
    uint4 *xring = shared + kStages * 4 * kThreads;       // [kStages][kRows][8]
    const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32, g = lane / 4, quad = lane % 4;
    const int splits = gridDim.y, rank = blockIdx.y, k = p.k;
    const int first = kMode == kGated ? blockIdx.x * 32 + warp * 8 : blockIdx.x * kCols + warp * 16;
    const int from = k / splits * rank, steps = k / splits / kStep;
    const bf16 *w0 = p.w + (size_t)(first + g) * k + from + quad * 8;
    const bf16 *w1 = p.w + (size_t)(first + g + (kMode == kGated ? p.n / 2 : 8)) * k + from + quad * 8;
    auto fill_w = [&](int step) {
        if (step >= steps) return;
        uint4 *to = wring + (step % kStages) * 4 * kThreads + tid;
        const size_t at = (size_t)step * kStep;
        copy_async(to, w0 + at), copy_async(to + kThreads, w1 + at);
        copy_async(to + 2 * kThreads, w0 + at + 32), copy_async(to + 3 * kThreads, w1 + at + 32);
    };
    auto fill_x = [&](int step) {
        if (step < steps) {
            uint4 *to = xring + (step % kStages) * kRows * 8;
#pragma unroll
            for (int c = tid; c < kRows * 8; c += kThreads) {
                const int row = c / 8, chunk = c % 8;
                // Odd rows have their halves swapped, lest two rows meet in one bank.
                copy_async(to + row * 8 + (chunk ^ (row & 1) << 2),
                           p.x + (size_t)min(row, p.m - 1) * k + from + (size_t)step * kStep + chunk * 8);
            }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
#pragma unroll
    for (int i = 0; i < kStages - 1; i++) fill_w(i);
    let_next_start();
    ahead_done();
#pragma unroll
    for (int i = 0; i < kStages - 1; i++) fill_x(i);

    float acc[NT][4] = {};
    for (int step = 0; step < steps; step++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
        __syncthreads();
        fill_w(step + kStages - 1);
        fill_x(step + kStages - 1);
        const uint4 *wp = wring + (step % kStages) * 4 * kThreads + tid, *xp = xring + (step % kStages) * kRows * 8;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint4 lo = wp[half * 2 * kThreads], hi = wp[(half * 2 + 1) * kThreads];
#pragma unroll
            for (int t = 0; t < NT; t++) {
                const uint4 b = xp[(t * 8 + g) * 8 + ((half * 4 + quad) ^ (g & 1) << 2)];
                mma(acc[t], lo.x, hi.x, lo.y, hi.y, b.x, b.y);
                mma(acc[t], lo.z, hi.z, lo.w, hi.w, b.z, b.w);
            }
        }
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    // acc[t]: columns (of w) g and g + 8 of the warp, rows (of x) 8t + 2 quad and the next.
    float *part = reinterpret_cast<float *>(shared);  // [kRows][kCols]
#pragma unroll
    for (int t = 0; t < NT; t++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            part[(t * 8 + quad * 2 + (i & 1)) * kCols + warp * 16 + g + (i >> 1) * 8] = acc[t][i];
    if (splits > 1) {
        cluster_sync();
    } else {
        __syncthreads();
    }
    auto total = [&](int row, int col) {
        const float *at = part + row * kCols + col;
        if (splits == 1) return *at;
        float sum = 0.f;
        for (int r = 0; r < splits; r++) sum += peer(at, r);
        return sum;
    };
    // Each block of the cluster finishes its share of the columns.
    const int cols = kCols / splits, base = cols * rank;
    if (kMode == kGated) {  // cols is 16 or more: whole pairs of 8 and 8
        for (int i = tid; i < kRows * (cols / 2); i += kThreads) {
            const int row = i / (cols / 2), j = i % (cols / 2), col = base + j / 8 * 16 + j % 8;
            if (row >= p.m) break;
            float gate = total(row, col), up = total(row, col + 8);
            if (p.sums_in) {
                const float scale = rsqrtf((float)p.sums_in[row] / kFixed / k + p.eps);
                gate *= scale, up *= scale;
            }
            store1((bf16 *)p.y + (size_t)row * (p.n / 2) + blockIdx.x * 32 + col / 16 * 8 + col % 8, silu(gate) * up);
        }
    } else {
        if (kMode == kResidual && blockIdx.x == 0 && rank == 0 && tid < p.m) p.sums_zero[tid] = 0;
        for (int i = tid; i < kRows * cols; i += kThreads) {
            const int row = i / cols, col = base + i % cols;
            const size_t n = blockIdx.x * kCols + col, at = (size_t)row * p.n + n;
            float sum = 0.f;
            if (row < p.m) {
                sum = total(row, col);
                if (p.sums_in) sum *= rsqrtf((float)p.sums_in[row] / kFixed / k + p.eps);
                if (p.bias) sum += p.bias[n];
                if (kMode == kPlain) store1((bf16 *)p.y + at, sum);
                if (kMode == kFloat) ((float *)p.y)[at] = sum;
            }
            if (kMode == kResidual) {
                float square = 0.f;
                if (row < p.m) {
                    sum += p.residual[at];
                    p.residual[at] = sum;
                    store1((bf16 *)p.y + at, sum * p.norm[n]);
                    square = sum * sum;
                }
                // cols is 8 to 64, so a row's columns are whole eighths of a warp.
                for (int d = min(cols, 32) / 2; d > 0; d >>= 1) square += __shfl_xor_sync(0xffffffffu, square, d);
                if (row < p.m && lane % min(cols, 32) == 0) atomicAdd(p.sums + row, __float2ull_rn(square * kFixed));
            }
        }
    }
    if (splits > 1) cluster_sync();  // others may still read our part
}

// The ring takes 64 to 72 KiB, so that three blocks fit a multiprocessor.
#define GEMM(NAME, MODE)                                                                                          \
    extern "C" __global__ void __launch_bounds__(128) NAME##_8(const Product p) { gemm<1, 8, MODE>(p); }           \
    extern "C" __global__ void __launch_bounds__(128) NAME##_16(const Product p) { gemm<2, 7, MODE>(p); }          \
    extern "C" __global__ void __launch_bounds__(128) NAME##_32(const Product p) { gemm<4, 6, MODE>(p); }          \
    extern "C" __global__ void __launch_bounds__(128) NAME##_64(const Product p) { gemm<8, 4, MODE>(p); }
GEMM(gemm_plain, kPlain)
GEMM(gemm_float, kFloat)
GEMM(gemm_gated, kGated)
GEMM(gemm_residual, kResidual)
