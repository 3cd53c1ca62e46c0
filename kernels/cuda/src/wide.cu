// What stream.cu does, for 9 to 64 rows of x on compute capability 9.0: y[m][n] = sum_k x[m][k] * w[n][k] and what
// follows, where the time is still that of reading w once.
//
// The operands change places: 64 rows of w are the left one of wgmma and all rows of x, in steps of 16, the right one.
// One thread has the copy engine fill a ring of stages, each 64 elements of k of both; four warps multiply. Stages of w
// are asked for before the kernel ahead has ended, since weights never change, and rings are so small that blocks of two
// kernels share a multiprocessor. Where tiles are too few to keep all of memory busy, the blocks of a cluster share k and
// send each other their parts of the sum through shared memory; each finishes some of the columns. All sums have one
// order, whatever other rows hold.
//
// Gated: a tile is 8 rows of gate, the 8 of up to them, and so on (pair_map in driver/launch.go), so that both sums of an
// element end in one thread.
//
// n % 32 == 0, k % 64 == 0, addresses of rows are multiples of 16.
#include "hopper.cuh"
#include "product.cuh"

#if __CUDA_ARCH_FEAT_SM90_ALL

constexpr int kTile = 64, kDeep = 64;  // of w's rows, of k
constexpr int kTileBytes = kTile * kDeep * 2;
constexpr int kMostStages = 16;
constexpr int kGroup = 128;            // threads that multiply; a warp more fetches
constexpr int kTurn = 3;               // see stream.cu; in steps of kDeep
constexpr int kPartBytes = kGroup * 16;

static __device__ inline void barrier_arrive(uint32_t bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

// barrier_wait_cluster waits for what other blocks send.
static __device__ inline void barrier_wait_cluster(uint32_t bar, int parity) {
    asm volatile(
        "{\n.reg .pred p;\nagain:\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n"
        "@p bra done;\nbra again;\ndone:\n}" ::"r"(bar), "r"(parity) : "memory");
}

// there is the address of something of this block's in another one of the cluster.
static __device__ inline uint32_t there(uint32_t here, int rank) {
    uint32_t r;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(here), "r"(rank));
    return r;
}

static __device__ inline void send(uint32_t to, uint32_t bar, const float *v) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to), "f"(v[0]),
                 "f"(v[1]), "f"(v[2]), "f"(v[3]), "r"(bar) : "memory");
}

// fetch_pairs brings a tile: see pair_map.
static __device__ inline void fetch_pairs(uint32_t to, const tensor_map *map, int col, int row, uint32_t bar) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, 0, 0, %4}], [%2];" ::"r"(to),
        "l"(map), "r"(bar), "r"(col), "r"(row / 16) : "memory");
}

// group_sync waits for the threads that multiply.
static __device__ inline void group_sync() { asm volatile("bar.sync 1, 128;" ::: "memory"); }

// multiply adds 64x16 times 16xN to d.
template <int N>
static __device__ inline void multiply(float (&d)[N / 2], uint64_t w, uint64_t x);

#define MULTIPLY(N, REGISTERS, W, X, ...)                                                                              \
    template <>                                                                                                        \
    __device__ inline void multiply<N>(float(&d)[N / 2], uint64_t w, uint64_t x) {                                     \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" REGISTERS "}, " W ", " X ", 1, 1, 1, 0, 0;" \
                     : __VA_ARGS__ : "l"(w), "l"(x));                                                                  \
    }
#define R8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define R16 R8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define R24 R16 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define R32 R24 ",%24,%25,%26,%27,%28,%29,%30,%31"
MULTIPLY(16, R8, "%8", "%9", D8(0))
MULTIPLY(32, R16, "%16", "%17", D8(0), D8(8))
MULTIPLY(48, R24, "%24", "%25", D8(0), D8(8), D8(16))
MULTIPLY(64, R32, "%32", "%33", D8(0), D8(8), D8(16), D8(24))

// N rows of x, those that are not there zero; kSplit blocks share k.
template <int N, int kMode, int kSplit>
static __device__ void wide(const tensor_map &wmap, const tensor_map &xmap, const Product &p, int stages) {
    // Eight rows of x are a column of the result; each block of the cluster finishes at most kMine.
    constexpr int kCols = N / 8, kMine = (kCols + kSplit - 1) / kSplit, kRowsBytes = N * kDeep * 2;
    extern __shared__ uint8_t shared[];
    __shared__ float factors[N], squares[4][N];
    __shared__ uint64_t barriers[2 * kMostStages + 1];
    const uint32_t data = (shared_address(shared) + 1023) & ~1023u, rows = data + stages * kTileBytes, parts = rows + stages * kRowsBytes;
    const uint32_t full = shared_address(barriers), empty = full + 8 * kMostStages, sent = empty + 8 * kMostStages;
    const int rank = blockIdx.x % kSplit, tile = blockIdx.x / kSplit, thread = threadIdx.x;
    const int all = p.k / kDeep, from = rank * all / kSplit, steps = (rank + 1) * all / kSplit - from;
    const int turn = (int)((unsigned)tile * kTurn % steps);
    auto place = [&](int i) { return (from + (i + turn < steps ? i + turn : i + turn - steps)) * kDeep; };
    auto fetch_w = [&](int i, int s) {
        barrier_expect(full + 8 * s, kTileBytes + kRowsBytes);
        fetch_pairs(data + s * kTileBytes, &wmap, place(i), tile * kTile, full + 8 * s);
    };
    auto fetch_x = [&](int i, int s) { fetch(rows + s * kRowsBytes, &xmap, place(i), 0, full + 8 * s); };

    if (thread == kGroup) {
        for (int s = 0; s < stages; s++) barrier_init(full + 8 * s, 1), barrier_init(empty + 8 * s, 1);
        barrier_init(sent, 1);
        asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
        for (int s = 0; s < min(stages, steps); s++) fetch_w(s, s);
        if (kSplit > 1) barrier_expect(sent, (kSplit - 1) * ((kCols - rank + kSplit - 1) / kSplit) * kPartBytes);
    }
    __syncthreads();
    let_next_start();
    if (kSplit > 1) asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    ahead_done();
    if (thread >= kGroup) {
        if (thread == kGroup) {
            for (int s = 0; s < min(stages, steps); s++) fetch_x(s, s);
            int s = 0, phase = 0;
#pragma unroll 1
            for (int i = stages; i < steps; i++) {
                barrier_wait(empty + 8 * s, phase);
                fetch_w(i, s), fetch_x(i, s);
                if (++s == stages) s = 0, phase ^= 1;
            }
        }
        __syncwarp();
        if (kSplit > 1) asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
        return;
    }

    const int warp = thread / 32, lane = thread % 32, g = lane / 4, quad = lane % 4;
    if (thread < N) factors[thread] = thread < p.m ? factor(p, thread) : 0.f;
    group_sync();
    // A thread's part of a column: w's rows first and first + 8 by two rows of x. What they will be added to is asked for
    // now; the i-th column of a block is that of number i * kSplit + rank.
    const int first = tile * kTile + warp * 16 + g;
    float old[kMine][4] = {}, weights[2] = {};
    if (kMode == kResidual) {
#pragma unroll
        for (int i = 0; i < kMine; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int row = (i * kSplit + rank) * 8 + quad * 2 + e % 2, n = first + e / 2 * 8;
                old[i][e] = row < p.m && n < p.n ? p.residual[(size_t)row * p.n + n] : 0.f;
            }
#pragma unroll
        for (int e = 0; e < 2; e++) weights[e] = first + 8 * e < p.n ? p.norm[first + 8 * e] : 0.f;
    }
    float sum[N / 2] = {};
    int s = 0, phase = 0, last = 0;
#pragma unroll 1
    for (int i = 0; i < steps; i++) {
        const uint64_t w = operand(data + s * kTileBytes), x = operand(rows + s * kRowsBytes);
        barrier_wait(full + 8 * s, phase);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int d = 0; d < kDeep / 16; d++) multiply<N>(sum, w + 2 * d, x + 2 * d);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        if (i > 0) {
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            if (thread == 0) barrier_arrive(empty + 8 * last);
        }
        last = s;
        if (++s == stages) s = 0, phase ^= 1;
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int i = 0; i < N / 2; i++) asm volatile("" : "+f"(sum[i])::"memory");  // not to be read before

    if (kSplit > 1) {
        asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#pragma unroll
        for (int c = 0; c < kCols; c++) {
            const int to = c % kSplit;
            if (to == rank) continue;
            const int slot = rank > to ? rank - 1 : rank;
            send(there(parts + (slot * kMine + c / kSplit) * kPartBytes + thread * 16, to), there(sent, to), &sum[c * 4]);
        }
        barrier_wait_cluster(sent, 0);
    }
    const float4 *part = reinterpret_cast<const float4 *>(shared + (parts - shared_address(shared)));
    float square[kCols][2] = {};
#pragma unroll
    for (int c = 0; c < kCols; c++) {
        if (c % kSplit != rank) continue;
        float v[4] = {sum[c * 4], sum[c * 4 + 1], sum[c * 4 + 2], sum[c * 4 + 3]};
#pragma unroll
        for (int q = 0; q < kSplit - 1; q++) {
            const float4 o = part[(q * kMine + c / kSplit) * kGroup + thread];
            v[0] += o.x, v[1] += o.y, v[2] += o.z, v[3] += o.w;
        }
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int row = c * 8 + quad * 2 + e;
            if (row >= p.m) continue;
            const float f = factors[row];
            if constexpr (kMode == kGated) {
                const int n = tile * (kTile / 2) + warp * 8 + g;
                if (n < p.n / 2) store1((bf16 *)p.y + (size_t)row * (p.n / 2) + n, silu(v[e] * f) * (v[e + 2] * f));
            } else {
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int n = first + 8 * h;
                    if (n >= p.n) continue;
                    const float r = finish<kMode>(p, row, n, v[e + 2 * h], f, p.bias ? p.bias[n] : 0.f, old[c / kSplit][e + 2 * h], weights[h]);
                    square[c][e] += r * r;
                }
            }
        }
    }
    if (kMode == kResidual) {
#pragma unroll
        for (int c = 0; c < kCols; c++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float v = square[c][e];
                for (int d = 4; d < 32; d *= 2) v += __shfl_xor_sync(0xffffffffu, v, d);
                if (g == 0) squares[warp][c * 8 + quad * 2 + e] = v;
            }
        group_sync();
        if (thread < p.m) {
            const float v = squares[0][thread] + squares[1][thread] + squares[2][thread] + squares[3][thread];
            if (v != 0.f) atomicAdd(p.sums + thread, __float2ull_rn(v * kFixed));
            if (blockIdx.x == 0) p.sums_zero[thread] = 0;
        }
    }
}

#define CLUSTER(SPLIT) __cluster_dims__(SPLIT, 1, 1)
#define BODY(N, MODE, SPLIT) wide<N, MODE, SPLIT>(w, x, p, stages);

#else

#define CLUSTER(SPLIT)
#define BODY(N, MODE, SPLIT)

#endif

#define WIDE(NAME, N, MODE, SPLIT)                                                                          \
    extern "C" __global__ void CLUSTER(SPLIT) __launch_bounds__(160, 1)                     \
        NAME##_##N##_##SPLIT(const __grid_constant__ tensor_map w, const __grid_constant__ tensor_map x, int stages, \
                             const __grid_constant__ Product p) {                                           \
        BODY(N, MODE, SPLIT)                                                                                \
    }
#define SPLITS(NAME, N, MODE) WIDE(NAME, N, MODE, 1) WIDE(NAME, N, MODE, 2) WIDE(NAME, N, MODE, 4)
#define MODES(N)                          \
    SPLITS(wide_plain, N, kPlain)         \
    SPLITS(wide_float, N, kFloat)         \
    SPLITS(wide_gated, N, kGated)         \
    SPLITS(wide_residual, N, kResidual)
MODES(16)
MODES(32)
MODES(48)
MODES(64)
