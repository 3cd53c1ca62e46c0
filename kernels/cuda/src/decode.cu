// Attention of one new token per sequence over its paged context, split into
// pieces that are shared out over the multiprocessors.
//
// An item is a piece of one row's context for all heads; a block takes items times
// key heads in turn. Its eight warps share the piece's tiles of 16 positions; a warp
// loads its next tile's keys as soon as it has used the last one's, values likewise.
// Keys and values go from memory
// to registers in 16-byte loads and from there to the matrix units, without shared
// memory:
//
//   scores [heads x positions] = q · kᵀ: a sum does not mind the order of the head's
//   elements, so the 8 that a thread loads are called the ones that the instruction
//   assigns to it, for q and k alike.
//   out ᵀ [elements x heads] = vᵀ · weightsᵀ: the layout in which the first product
//   leaves its result is the one in which the second wants its right operand; vᵀ
//   needs pairs of positions in a register, two byte permutations each.
//
// With kTurn the block normalises and rotates q, and the block of a row's last piece
// does so with the new key, stores key and value, and uses them as they are: what
// rope.cu does, without a kernel of its own. Up to 8 query heads share a key head. Pieces of one row are put
// together by the block that finishes last.
//
// With kTurn only q, k and v of the new tokens come from the kernel ahead. So tables and older keys and values are read
// while that still runs: 3.7 us a layer (H200, Qwen3-8B's shape, one row of 300 tokens).
#include "common.cuh"

constexpr int kWarps = 8;

struct Piece {
    int row;    // of q and out
    int begin;  // first position, a multiple of 16
    int end;    // one past the last position
    int part;   // its place among all pieces of rows that have several, or -1
};

struct Row {
    int table_at;    // where its block table begins
    int parts;       // number of its pieces
    int first_part;  // place of its first piece
    int position;    // of the row's new token
};

struct Decode {
    bf16 *out;
    const void *qkv;  // [rows][heads + 2 kv_heads][D]: T
    bf16 *k_cache, *v_cache;
    const Piece *pieces;
    const int *count;
    const Row *rows;
    const int *blocks, *slots;
    int heads, kv_heads, block_size;
    float scale;
    float *part_out;
    float2 *part_sum;
    int *arrived;
    const float *inv_freq, *q_norm, *k_norm;
    float eps;
};

// entry reads an entry of the step's tables. It may be called ahead of ahead_done(), so the L1 cache, which may hold what
// was there before, is left out.
template <typename T>
static __device__ inline T entry(const T *at) {
    static_assert(sizeof(T) == sizeof(int4));
    union { int4 words; T value; } u;
    u.words = __ldcg(reinterpret_cast<const int4 *>(at));
    return u.value;
}

// turn normalises (if w) and rotates one head, a warp's job, and writes it to dst.
template <int D, typename T>
static __device__ void turn(bf16 *dst, bf16 *cache, const T *x, const float *w, float eps, const float2 *turns) {
    constexpr int kPer = D / 64;
    const int lane = threadIdx.x % 32;
    float a[kPer], b[kPer], sum = 0.f;
#pragma unroll
    for (int j = 0; j < kPer; j++) {
        a[j] = load1(x + lane + 32 * j), b[j] = load1(x + lane + 32 * j + D / 2);
        sum += a[j] * a[j] + b[j] * b[j];
    }
    const float scale = w ? rsqrtf(warp_sum(sum) / D + eps) : 1.f;
#pragma unroll
    for (int j = 0; j < kPer; j++) {
        const int i = lane + 32 * j;
        if (w) a[j] *= scale * w[i], b[j] *= scale * w[i + D / 2];
        const float2 t = turns[i];
        const bf16 ra = __float2bfloat16(a[j] * t.x - b[j] * t.y), rb = __float2bfloat16(b[j] * t.x + a[j] * t.y);
        if (dst) dst[i] = ra, dst[i + D / 2] = rb;
        if (cache) cache[i] = ra, cache[i + D / 2] = rb;
    }
}

// Tile is the keys and values of 16 positions as a thread holds them.
template <int D>
struct Tile {
    uint4 k0[D / 32], k1[D / 32], v[D / 64][4];

    // load_keys and load_values read the tile at slot; from points to the key head.
    __device__ inline void load_keys(const bf16 *from, size_t slot, size_t stride, int g, int quad) {
        const bf16 *kp = from + slot * stride + quad * 8;
#pragma unroll
        for (int j = 0; j < D / 32; j++) {
            k0[j] = __ldcg(reinterpret_cast<const uint4 *>(kp + g * stride + j * 32));
            k1[j] = __ldcg(reinterpret_cast<const uint4 *>(kp + (g + 8) * stride + j * 32));
        }
    }

    __device__ inline void load_values(const bf16 *from, size_t slot, size_t stride, int g, int quad) {
        const bf16 *vp = from + slot * stride + g * 8;
#pragma unroll
        for (int h = 0; h < D / 64; h++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[h][i] = __ldcg(reinterpret_cast<const uint4 *>(vp + (2 * quad + (i & 1) + (i >> 1) * 8) * stride + h * 64));
    }
};

template <int D, bool kTurn, typename T>
static __device__ void attend(const Decode &p) {
    constexpr int kQ = D / 32, kHalves = D / 64;
    __shared__ float shared_out[kWarps][8][D];
    __shared__ float2 shared_sum[kWarps][8];
    __shared__ __align__(16) bf16 shared_q[8][D];
    __shared__ __align__(16) bf16 shared_k[D], shared_v[D];
    __shared__ float2 turns[D / 2];
    __shared__ int last_one;
    let_next_start();
    bool waited = !kTurn;
    if (waited) ahead_done();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, quad = lane % 4;
    const int heads = p.heads, kv_heads = p.kv_heads, group = heads / kv_heads, units = __ldcg(p.count) * kv_heads;
    const float scale2 = p.scale * 1.4426950408889634f;
    const size_t stride = (size_t)kv_heads * D, q_stride = (size_t)(heads + 2 * kv_heads) * D;
    for (int unit = blockIdx.x; unit < units; unit += gridDim.x) {
        const Piece piece = entry(p.pieces + unit / kv_heads);
        const int kv = unit % kv_heads;
        const Row row = entry(p.rows + piece.row);
        const int *table = p.blocks + row.table_at;
        const T *x = (const T *)p.qkv + piece.row * q_stride;
        const bf16 *keys = p.k_cache + kv * D, *values = p.v_cache + kv * D;
        auto slot_of = [&](int t) { return (size_t)__ldcg(table + t / p.block_size) * p.block_size + t % p.block_size; };
        Tile<D> now;
        size_t slot = 0;  // of the tile whose keys are loaded
        int t = piece.begin + warp * 16;
        if (t < piece.end) {
            slot = slot_of(t);
            now.load_keys(keys, slot, stride, g, quad);
            now.load_values(values, slot, stride, g, quad);
        }
        uint4 qr[kQ];
        if (kTurn) {
            const int slot_of_new = __ldcg(p.slots + piece.row);
            if (threadIdx.x < D / 2) {
                float s, c;
                sincosf(__fmul_rn((float)row.position, p.inv_freq[threadIdx.x]), &s, &c);
                turns[threadIdx.x] = make_float2(c, s);
            }
            __syncthreads();
            if (!waited) ahead_done();
            waited = true;
            // Groups of 8 leave no warp over for the key: the last one does both.
            for (int h = warp; h < group; h += kWarps) turn<D>(shared_q[h], nullptr, x + (kv * group + h) * D, p.q_norm, p.eps, turns);
            if (piece.end == row.position + 1) {  // the new token is in this piece
                const size_t at = (size_t)max(0, slot_of_new) * stride + kv * D;
                if (warp == kWarps - 1) turn<D>(shared_k, p.k_cache + at, x + (heads + kv) * D, p.k_norm, p.eps, turns);
                if (warp == kWarps - 2 && lane < D / 8) {
                    const uint4 v = narrow8(x + (heads + kv_heads + kv) * D + lane * 8);
                    reinterpret_cast<uint4 *>(p.v_cache + at)[lane] = v;
                    reinterpret_cast<uint4 *>(shared_v)[lane] = v;
                }
            }
            __syncthreads();
        }
#pragma unroll
        for (int j = 0; j < kQ; j++) {
            qr[j] = make_uint4(0, 0, 0, 0);
            if (g < group)
                qr[j] = kTurn ? narrow8(shared_q[g] + j * 32 + quad * 8) : narrow8(x + (kv * group + g) * D + j * 32 + quad * 8);
        }
        float o[kHalves][4][4] = {};
        float top = -INFINITY, total = 0.f;
        for (; t < piece.end; t += kWarps * 16) {
            if (t + 16 >= piece.end) {  // the context ends in this tile
                if (kTurn && row.position - t < 16) {  // with the new token, whose key and value may not be in memory yet
                    const int at = row.position - t;
#pragma unroll
                    for (int j = 0; j < kQ; j++) {
                        const uint4 fresh = *reinterpret_cast<const uint4 *>(shared_k + j * 32 + quad * 8);
                        if (g == at) now.k0[j] = fresh;
                        if (g + 8 == at) now.k1[j] = fresh;
                    }
#pragma unroll
                    for (int h = 0; h < kHalves; h++)
#pragma unroll
                        for (int i = 0; i < 4; i++)
                            if (2 * quad + (i & 1) + (i >> 1) * 8 == at)
                                now.v[h][i] = narrow8(shared_v + h * 64 + g * 8);
                }
                // What lies behind the context may be anything; its weight is zero, but
                // zero times NaN is not.
#pragma unroll
                for (int h = 0; h < kHalves; h++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        if (t + 2 * quad + (i & 1) + (i >> 1) * 8 >= piece.end) now.v[h][i] = make_uint4(0, 0, 0, 0);
            }
            float s0[4] = {}, s1[4] = {};
#pragma unroll
            for (int j = 0; j < kQ; j++) {
                mma(s0, qr[j].x, 0, qr[j].y, 0, now.k0[j].x, now.k0[j].y);
                mma(s1, qr[j].x, 0, qr[j].y, 0, now.k1[j].x, now.k1[j].y);
                mma(s0, qr[j].z, 0, qr[j].w, 0, now.k0[j].z, now.k0[j].w);
                mma(s1, qr[j].z, 0, qr[j].w, 0, now.k1[j].z, now.k1[j].w);
            }
            const bool more = t + kWarps * 16 < piece.end;
            if (more) {
                slot = slot_of(t + kWarps * 16);
                now.load_keys(keys, slot, stride, g, quad);
            }
            // Row g of the scores is head g; this thread has four positions of it.
            float s[4] = {s0[0] * scale2, s0[1] * scale2, s1[0] * scale2, s1[1] * scale2};
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (t + 2 * quad + (i & 1) + (i >> 1) * 8 >= piece.end) s[i] = -INFINITY;
            float high = fmaxf(fmaxf(s[0], s[1]), fmaxf(s[2], s[3]));
            high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 1));
            high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 2));
            high = fmaxf(high, top);
            if (__any_sync(0xffffffffu, high > top)) {
                const float keep = exp2f(top - high);
                total *= keep;
                top = high;
                // The accumulators' columns are heads 2*quad and 2*quad + 1.
                const float keep0 = __shfl_sync(0xffffffffu, keep, quad * 8), keep1 = __shfl_sync(0xffffffffu, keep, quad * 8 + 4);
#pragma unroll
                for (int h = 0; h < kHalves; h++)
#pragma unroll
                    for (int i = 0; i < 4; i++) o[h][i][0] *= keep0, o[h][i][1] *= keep1, o[h][i][2] *= keep0, o[h][i][3] *= keep1;
            }
#pragma unroll
            for (int i = 0; i < 4; i++) s[i] = exp2f(s[i] - top), total += s[i];
            const uint32_t p0 = pack2(s[0], s[1]), p1 = pack2(s[2], s[3]);
#pragma unroll
            for (int h = 0; h < kHalves; h++) {
                const uint32_t *a = &now.v[h][0].x, *b = &now.v[h][1].x, *c = &now.v[h][2].x, *d = &now.v[h][3].x;
#pragma unroll
                for (int i = 0; i < 4; i++)
                    mma(o[h][i], __byte_perm(a[i], b[i], 0x5410), __byte_perm(a[i], b[i], 0x7632), __byte_perm(c[i], d[i], 0x5410),
                        __byte_perm(c[i], d[i], 0x7632), p0, p1);
            }
            if (more) now.load_values(values, slot, stride, g, quad);
        }
        total += __shfl_xor_sync(0xffffffffu, total, 1);
        total += __shfl_xor_sync(0xffffffffu, total, 2);
        if (quad == 0) shared_sum[warp][g] = make_float2(top, total);
#pragma unroll
        for (int h = 0; h < kHalves; h++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int e = h * 64 + g * 8 + 2 * i;
                shared_out[warp][2 * quad][e] = o[h][i][0], shared_out[warp][2 * quad + 1][e] = o[h][i][1];
                shared_out[warp][2 * quad][e + 1] = o[h][i][2], shared_out[warp][2 * quad + 1][e + 1] = o[h][i][3];
            }
        __syncthreads();
        for (int i = threadIdx.x; i < group * D; i += blockDim.x) {
            const int h = i / D, e = i % D, head = kv * group + h;
            float m = -INFINITY, l = 0.f, sum = 0.f;
#pragma unroll
            for (int w = 0; w < kWarps; w++) m = fmaxf(m, shared_sum[w][h].x);
#pragma unroll
            for (int w = 0; w < kWarps; w++) {
                const float f = exp2f(shared_sum[w][h].x - m);  // 0 for a warp without tiles
                l += f * shared_sum[w][h].y, sum += f * shared_out[w][h][e];
            }
            if (piece.part < 0) {
                store1(p.out + ((size_t)piece.row * heads + head) * D + e, sum / l);
            } else {
                p.part_out[((size_t)piece.part * heads + head) * D + e] = sum;
                if (e == 0) p.part_sum[(size_t)piece.part * heads + head] = make_float2(m, l);
            }
        }
        if (piece.part >= 0) {
            __threadfence();
            __syncthreads();
            if (threadIdx.x == 0) {
                int *a = p.arrived + piece.row * kv_heads + kv;
                last_one = atomicAdd(a, 1) == row.parts - 1;
                if (last_one) *a = 0;  // for the next layer
            }
            __syncthreads();
            if (last_one) {
                __threadfence();
                // Factors of the parts first, all at once; a warp takes a head.
                float *factor = &shared_out[0][0][0];  // [parts][8]
                for (int h = warp; h < group; h += kWarps) {
                    const float2 *sums = p.part_sum + (size_t)row.first_part * heads + kv * group + h;
                    float m = -INFINITY, l = 0.f;
                    for (int i = lane; i < row.parts; i += 32) m = fmaxf(m, __ldcg(sums + (size_t)i * heads).x);
                    m = warp_max(m);
                    for (int i = lane; i < row.parts; i += 32) {
                        const float2 ml = __ldcg(sums + (size_t)i * heads);
                        const float f = exp2f(ml.x - m);
                        factor[i * 8 + h] = f;
                        l += f * ml.y;
                    }
                    l = warp_sum(l);
                    if (lane == 0) shared_sum[0][h].y = l;
                }
                __syncthreads();
                for (int i = threadIdx.x; i < group * D; i += blockDim.x) {
                    const int h = i / D, e = i % D, head = kv * group + h;
                    const float *from = p.part_out + ((size_t)row.first_part * heads + head) * D + e;
                    float sum = 0.f;
#pragma unroll 8
                    for (int k = 0; k < row.parts; k++) sum += factor[k * 8 + h] * __ldcg(from + (size_t)k * heads * D);
                    store1(p.out + ((size_t)piece.row * heads + head) * D + e, sum / shared_sum[0][h].y);
                }
            }
        }
        __syncthreads();  // before the next item writes to shared memory
    }
    if (!waited) ahead_done();
}

#define DECODE(D)                                                                                                   \
    extern "C" __global__ void __launch_bounds__(256, 1) decode_attention_##D(const Decode p) { attend<D, false, bf16>(p); } \
    extern "C" __global__ void __launch_bounds__(256, 1) decode_turn_attention_##D(const Decode p) { attend<D, true, bf16>(p); } \
    extern "C" __global__ void __launch_bounds__(256, 1) decode_turn_float_attention_##D(const Decode p) { attend<D, true, float>(p); }
DECODE(64)
DECODE(128)
