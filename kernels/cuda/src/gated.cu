// gated: y[r][i] = silu(x[r] . gate[i]) * (x[r] . up[i]) for many rows, on Hopper's own instructions. w holds the rows
// of gate above those of up. Both sums of an element of y end in one thread: neither is written, nor rounded.
//
// A tile is 128 rows of x by 88 rows of gate and the same 88 of up, one operand of 176 rows for wgmma. A cluster of two
// blocks takes 256 rows; each block fetches its own rows of x and one half of w, which the copy engine delivers to both.
// In a block one thread fetches, some stages ahead, and two groups of four warps take tiles in turns: while one stores
// its results the other multiplies, so the matrix units never wait. That saves energy, too, which is what limits the
// rate (700 W): the same work in bursts takes a higher clock and more of it.
#include "hopper.cuh"

#if __CUDA_ARCH_FEAT_SM90_ALL

constexpr int kRows = 128, kCols = 88, kDeep = 64;
constexpr int kTileBytes = kRows * kDeep * 2;  // of x
constexpr int kHalfBytes = kCols * kDeep * 2;  // of gate or up
constexpr int kStageBytes = kTileBytes + 2 * kHalfBytes;
constexpr int kOutBytes = 64 * kCols * 2;      // a box of y: 64 rows
constexpr int kStages = 5;                     // 218,208 bytes in all, of 232,448 that a block may have
constexpr int kGroup = 8;                      // pairs of blocks' rows that stay in the L2 cache while w passes

// barrier_arrive arrives at the barrier of one of the cluster's blocks.
static __device__ inline void barrier_arrive(uint32_t bar, int block) {
    asm volatile(
        "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(bar), "r"(block) : "memory");
}

static __device__ inline void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// fetch_both brings a box to both blocks of the cluster.
static __device__ inline void fetch_both(uint32_t to, const tensor_map *map, int col, int row, uint32_t bar) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4}], "
        "[%2], %5;" ::"r"(to), "l"(map), "r"(bar), "r"(col), "r"(row), "h"((uint16_t)3) : "memory");
}

static __device__ inline void put(const tensor_map *map, int col, int row, uint32_t from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(col), "r"(row),
                 "r"(from) : "memory");
}

#define D64(i) D8(i), D8(i + 8), D8(i + 16), D8(i + 24), D8(i + 32), D8(i + 40), D8(i + 48), D8(i + 56)

// multiply adds 64x16 times 16x176 to d, or sets d to it if add is 0.
static __device__ inline void multiply(float (&d)[88], uint64_t x, uint64_t w, int add) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %90, 0;\nwgmma.mma_async.sync.aligned.m64n176k16.f32.bf16.bf16 {"
            "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,"
            "%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,"
            "%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,"
            "%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87"
        "}, %88, %89, p, 1, 1, 0, 0;\n}"
        : D64(0), D8(64), D8(72), D8(80)
        : "l"(x), "l"(w), "r"(add));
}

// tile is what a block computes: kRows rows from row on, or half of them, by kCols columns from col on. Apart means
// that the cluster's blocks have columns of their own and share nothing.
struct tile {
    int row, col;
    bool apart, tall;
};

// tiling lists a cluster's tiles. Most are whole: 256 rows. Every clusters-th is this one's, rows first within a group,
// so the last clusters may have one fewer. At most 128 rows that are left over, as of a prompt beside some decoding
// rows, make tiles of their own, which take half of a whole one's time if the rows are 64. The clusters with fewer
// whole tiles take more of them; each is done when its columns of w have just been read by the whole ones: at the end
// all of w would come from memory once more, which cost an eighth at 2078 rows.
struct tiling {
    int rest, across, clusters, whole, pairs, next, left, step, left_end;

    __device__ tiling(int rows, int cols, int cluster, int clusters) : rest(rows % (2 * kRows)), across((cols + kCols - 1) / kCols), clusters(clusters) {
        pairs = rows / (2 * kRows);
        if (rest > kRows) pairs++, rest = 0;
        whole = pairs * across, next = cluster;
        const int all = rest ? (across + 1) / 2 : 0, each = rest > kRows / 2 ? 2 : 3;
        const int brief = (clusters - whole % clusters) % clusters, first = clusters - brief;
        if (cluster >= first) {
            left = (cluster - first) * each, step = 1;
            left_end = min(all, left + each);
        } else {
            left = brief * each + cluster, step = first;
            left_end = all;
        }
    }

    // take sets t to the next tile of the block and reports whether there is one.
    __device__ bool take(tile &t, int rank) {
        const int last = max(pairs - 1, 0) / kGroup * kGroup;  // where the last group begins
        if (left < left_end && (next >= whole || last * across + 2 * left * (pairs - last) <= next)) {
            t = {pairs * 2 * kRows, (2 * left + rank) * kCols, true, rest > kRows / 2};
            left += step;
            return true;
        }
        if (next >= whole) return false;
        const int first = next / (kGroup * across) * kGroup, n = min(kGroup, pairs - first), i = next - first * across;
        t = {(2 * (first + i % n) + rank) * kRows, i / n * kCols, false, true};
        next += clusters;
        return true;
    }
};

// ring is the stages' data and barriers in shared memory, as addresses.
struct ring {
    uint32_t data, full, empty;

    __device__ uint32_t at(int stage) const { return data + stage * kStageBytes; }
};

// sum_of sums steps products from the at-th stage on, of rows 0 to 63 in upper and of the others, if kTall, in lower.
// It frees all stages but the last, which it returns.
template <bool kTall>
static __device__ inline int sum_of(float (&upper)[kCols], float (&lower)[kCols], const ring &r, int at, int steps, int thread) {
    int stage = at % kStages, phase = at / kStages & 1, last = 0;
    for (int k = 0; k < steps; k++) {
        const uint64_t a = operand(r.at(stage)), b = operand(r.at(stage) + kTileBytes);
        barrier_wait(r.full + 8 * stage, phase);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int i = 0; i < kDeep / 16; i++) {
            multiply(upper, a + 2 * i, b + 2 * i, k + i);
            if (kTall) multiply(lower, a + 64 * kDeep * 2 / 16 + 2 * i, b + 2 * i, k + i);
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        if (k > 0) {
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            if (thread < 2) barrier_arrive(r.empty + 8 * last, thread);
        }
        last = stage;
        if (++stage == kStages) stage = 0, phase ^= 1;
    }
    return last;
}

// store leaves the activation of 64 rows in shared memory at out, rows without gaps.
static __device__ inline void store(uint32_t out, const float (&d)[kCols], int thread) {
    const int lane = thread % 32, row = thread / 32 * 16 + lane % 16;
    uint32_t v[4];
#pragma unroll
    for (int i = 0; i < kCols / 8; i++) {  // 8 columns
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const float g0 = d[4 * i + 2 * j], g1 = d[4 * i + 2 * j + 1];
            v[i % 2 * 2 + j] = pack2(__fdividef(g0, 1.f + __expf(-g0)) * d[kCols / 2 + 4 * i + 2 * j],
                                     __fdividef(g1, 1.f + __expf(-g1)) * d[kCols / 2 + 4 * i + 2 * j + 1]);
        }
        const uint32_t to = out + row * 2 * kCols;
        if (i % 2 == 1)
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to + (i - 1 + lane / 16) * 16),
                         "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
        else if (i == kCols / 8 - 1)
            asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(to + i * 16), "r"(v[0]), "r"(v[1]) : "memory");
    }
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
    gated(const __grid_constant__ tensor_map x, const __grid_constant__ tensor_map w, const __grid_constant__ tensor_map y,
          int rows, int cols, int deep) {
    extern __shared__ uint8_t shared[];
    ring r;
    r.data = (shared_address(shared) + 1023) & ~1023u;
    const uint32_t out = r.data + kStages * kStageBytes;
    r.full = out + 2 * kOutBytes, r.empty = r.full + 8 * kStages;
    const uint32_t turn = r.empty + 8 * kStages;
    const int rank = blockIdx.x % 2, group = threadIdx.x / 128, thread = threadIdx.x % 128, steps = (deep + kDeep - 1) / kDeep;
    tiling tiles(rows, cols, blockIdx.x / 2, gridDim.x / 2);
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; i++) {
            barrier_init(r.full + 8 * i, 1);
            barrier_init(r.empty + 8 * i, 2);  // a group of either block
        }
        barrier_init(turn, 1), barrier_init(turn + 8, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    cluster_sync();
    ahead_done();
    let_next_start();
    tile t;
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (thread == 0) {
            int stage = 0, phase = 1;
            while (tiles.take(t, rank)) {
#pragma unroll 1
                for (int k = 0; k < steps; k++) {
                    const uint32_t bar = r.full + 8 * stage, to = r.at(stage);
                    barrier_wait(r.empty + 8 * stage, phase);
                    barrier_expect(bar, kStageBytes);
                    fetch(to, &x, k * kDeep, t.row, bar);
                    if (t.apart) {
                        fetch(to + kTileBytes, &w, k * kDeep, t.col, bar);
                        fetch(to + kTileBytes + kHalfBytes, &w, k * kDeep, cols + t.col, bar);
                    } else {
                        fetch_both(to + kTileBytes + rank * kHalfBytes, &w, k * kDeep, rank * cols + t.col, bar);
                    }
                    if (++stage == kStages) stage = 0, phase ^= 1;
                }
            }
        }
        __syncwarp();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        const int part = group - 1;
        const uint32_t mine = out + part * kOutBytes;
        float upper[kCols], lower[kCols];
        int turns = part ^ 1;
        for (int i = 0; tiles.take(t, rank); i++) {
            if (i % 2 != part) continue;
            // A stage's barrier tells one round from the next only, so the other group must have seen all of its own.
            barrier_wait(turn + 8 * part, turns);
            turns ^= 1;
            const int last = t.tall ? sum_of<true>(upper, lower, r, i * steps, steps, thread) : sum_of<false>(upper, lower, r, i * steps, steps, thread);
            if (thread == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(turn + 8 * (part ^ 1)) : "memory");
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            if (thread < 2) barrier_arrive(r.empty + 8 * last, thread);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                if (h && !t.tall) break;
                // The box before must have left before this one goes there.
                if (thread == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
                asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");
                store(mine, h ? lower : upper, thread);
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");
                if (thread == 0) {
                    put(&y, t.col, t.row + 64 * h, mine);
                    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
                }
            }
        }
        if (thread == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        __syncwarp();
    }
    cluster_sync();  // no block may end while the other still sends to it
}

#else

extern "C" __global__ void gated(const __grid_constant__ tensor_map x, const __grid_constant__ tensor_map w,
                                 const __grid_constant__ tensor_map y, int rows, int cols, int deep) {}

#endif
