// y[m][n] = sum_k x[m][k] * w[n][k] for at most 16 rows of x: a decode step, where
// the time is that of reading w once.
//
// A block makes 16 columns; its 8 warps share k in steps of 32, in turns, so that
// the block reads 512 contiguous bytes of each of its rows at a time. w passes
// through a ring in shared memory that each thread fills and empties alone: 16-byte
// asynchronous copies several steps ahead, no barrier. The ring is filled before the
// kernel ahead has ended, since weights never change, and is small enough for blocks
// of two kernels to share a multiprocessor. x is read from the L2 cache into registers,
// which the unrolled loop uses in turns: to shift them would wait for them. As in decode.cu the
// 8 elements that a thread loads are called the ones that the instruction
// assigns to it, for w (left operand) and x alike. Blocks begin at different places of
// k (turn), lest all ask for addresses of one remainder at once: worth a tenth of the
// bandwidth. Gated: 8 of the 16 columns are gates, 8 the ups to them.
//
// n % 32 == 0, k % 32 == 0, rows 16-byte aligned.
#include "product.cuh"

constexpr int kWarps = 8, kThreads = kWarps * 32;

// stream has kStages steps of w and kAhead of x on their way.
template <int NT, int kMode, int kStages, int kAhead>
static __device__ void stream(const Product &p) {
    static_assert(kStages % kAhead == 0, "a step's x is in the same registers in every round");
    __shared__ uint4 ring[kStages * 2 * kThreads];
    const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32, g = lane / 4, quad = lane % 4, k = p.k;
    const int first = kMode == kGated ? blockIdx.x * 8 : blockIdx.x * 16;
    const bf16 *w0 = p.w + (size_t)(first + g) * k + quad * 8;
    const bf16 *w1 = p.w + (size_t)(first + g + (kMode == kGated ? p.n / 2 : 8)) * k + quad * 8;
    const int steps = k / 32;
    const int start = (int)((unsigned)blockIdx.x * p.turn % steps);
    auto place = [&](int step) { return (step + start < steps ? step + start : step + start - steps) * 32; };
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

    // At most one output a thread: there are NT * 128, or 64 if gated.
    constexpr int kCols = kMode == kGated ? 8 : 16;
    const int col = tid % kCols;
    Output<kMode> out;
    out.row = tid / kCols, out.n = first + col;
    const bool mine = out.row < p.m;
    if (mine) out.read_parameters(p);
    ahead_done();

    const bf16 *xp[NT];
#pragma unroll
    for (int t = 0; t < NT; t++) xp[t] = p.x + (size_t)min(t * 8 + g, p.m - 1) * k + quad * 8;
    uint4 x[kAhead][NT];
    auto read = [&](int step, uint4(&to)[NT]) {
        if (step >= steps) return;
#pragma unroll
        for (int t = 0; t < NT; t++) to[t] = *reinterpret_cast<const uint4 *>(xp[t] + place(step));
    };
#pragma unroll
    for (int i = 0; i < kAhead; i++) read(warp + i * kWarps, x[i]);
    if (mine) out.read_activations(p);
    float acc[NT][4] = {};
#pragma unroll 1
    for (int round = warp; round < steps; round += kStages * kWarps) {
#pragma unroll
        for (int i = 0; i < kStages; i++) {
            const int step = round + i * kWarps;
            if (step >= steps) break;
            uint4(&b)[NT] = x[i % kAhead];
            asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 1) : "memory");
            const uint4 lo = ring[(i * 2) * kThreads + tid], hi = ring[(i * 2 + 1) * kThreads + tid];
#pragma unroll
            for (int t = 0; t < NT; t++) {
                mma(acc[t], lo.x, hi.x, lo.y, hi.y, b[t].x, b[t].y);
                mma(acc[t], lo.z, hi.z, lo.w, hi.w, b[t].z, b[t].w);
            }
            fill(step + kStages * kWarps, i);
            read(step + kAhead * kWarps, b);
        }
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
    auto total = [&](int c) {
        float sum = 0.f;
#pragma unroll
        for (int v = 0; v < kWarps; v++) sum += part[(v * NT * 8 + out.row) * 16 + c];
        return sum;
    };
    if (kMode == kResidual && blockIdx.x == 0 && tid < p.m) p.sums_zero[tid] = 0;
    if constexpr (kMode == kGated) {
        if (mine) out.store_gated(p, total(col), total(col + 8));
    } else {
        float square = 0.f;
        if (mine) square = out.store(p, total(col));
        if (kMode == kResidual) {
            for (int d = 8; d > 0; d >>= 1) square += __shfl_xor_sync(0xffffffffu, square, d);
            if (mine && col == 0) atomicAdd(p.sums + out.row, __float2ull_rn(square * kFixed));
        }
    }
}

// Kernels for up to 8 and 16 rows. Those with small in their names are for weights of which a block's share is soon read:
// they have all the more on its way ahead. Large weights, whose x is longer, want the L1 cache that this takes.
#define STREAM(NAME, MODE, STAGES, AHEAD)                                                                                       \
    extern "C" __global__ void __launch_bounds__(256, 4) NAME##_8(const Product p) { stream<1, MODE, STAGES, AHEAD>(p); }   \
    extern "C" __global__ void __launch_bounds__(256, 4) NAME##_16(const Product p) { stream<2, MODE, STAGES, AHEAD>(p); }
STREAM(stream_plain, kPlain, 4, 2)
STREAM(stream_float, kFloat, 4, 2)
STREAM(stream_gated, kGated, 4, 2)
STREAM(stream_residual, kResidual, 4, 2)
STREAM(stream_plain_small, kPlain, 6, 3)
STREAM(stream_float_small, kFloat, 6, 3)
STREAM(stream_gated_small, kGated, 6, 3)
STREAM(stream_residual_small, kResidual, 6, 3)
