// Attention of one new token per sequence over its paged context, split into
// pieces that are shared out over the multiprocessors.
//
// An item is a piece of one row's context for all heads; a block takes items times
// key heads in turn. Its four warps share the piece's tiles of 16 positions. Keys
// and values go from memory to registers in 16-byte loads and from there to the
// matrix units, without shared memory:
//
//   scores [heads x positions] = q · kᵀ: a sum does not mind the order of the head's
//   elements, so the 8 that a thread loads are called the ones that the instruction
//   assigns to it, for q and k alike.
//   out ᵀ [elements x heads] = vᵀ · weightsᵀ: the layout in which the first product
//   leaves its result is the one in which the second wants its right operand; vᵀ
//   needs pairs of positions in a register, two byte permutations each.
//
// Up to 8 query heads share a key head. Pieces of one row are put together by the
// block that finishes last.
#include "common.cuh"

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
    int unused;
};

template <int D>
static __device__ void attend(bf16 *out, const bf16 *q, int q_stride, const bf16 *k_cache, const bf16 *v_cache, const Piece *pieces, const int *count, const Row *rows,
                              const int *blocks, int heads, int kv_heads, int block_size, float scale, float *part_out,
                              float2 *part_sum, int *arrived) {
    constexpr int kWarps = 4, kQ = D / 32, kHalves = D / 64;
    __shared__ float shared_out[kWarps][8][D];
    __shared__ float2 shared_sum[kWarps][8];
    __shared__ int last_one;
    ahead_done();
    let_next_start();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, quad = lane % 4;
    const int group = heads / kv_heads, units = *count * kv_heads;
    const float scale2 = scale * 1.4426950408889634f;
    const size_t stride = (size_t)kv_heads * D;
    for (int unit = blockIdx.x; unit < units; unit += gridDim.x) {
        const Piece piece = pieces[unit / kv_heads];
        const int kv = unit % kv_heads;
        const Row row = rows[piece.row];
        const int *table = blocks + row.table_at;
        uint4 qr[kQ];
#pragma unroll
        for (int j = 0; j < kQ; j++) {
            qr[j] = make_uint4(0, 0, 0, 0);
            if (g < group)
                qr[j] = *reinterpret_cast<const uint4 *>(q + (size_t)piece.row * q_stride + (kv * group + g) * D + j * 32 + quad * 8);
        }
        float o[kHalves][4][4] = {};
        float top = -INFINITY, total = 0.f;
        for (int t = piece.begin + warp * 16; t < piece.end; t += kWarps * 16) {
            const size_t slot = (size_t)table[t / block_size] * block_size + t % block_size;
            const bf16 *kp = k_cache + slot * stride + kv * D, *vp = v_cache + slot * stride + kv * D;
            uint4 k0[kQ], k1[kQ], v[kHalves][4];
#pragma unroll
            for (int j = 0; j < kQ; j++) {
                k0[j] = __ldcg(reinterpret_cast<const uint4 *>(kp + g * stride + j * 32 + quad * 8));
                k1[j] = __ldcg(reinterpret_cast<const uint4 *>(kp + (g + 8) * stride + j * 32 + quad * 8));
            }
#pragma unroll
            for (int h = 0; h < kHalves; h++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    const int p = 2 * quad + (i & 1) + (i >> 1) * 8;
                    v[h][i] = __ldcg(reinterpret_cast<const uint4 *>(vp + p * stride + h * 64 + g * 8));
                    // What lies behind the context may be anything; its weight is
                    // zero, but zero times NaN is not.
                    if (t + p >= piece.end) v[h][i] = make_uint4(0, 0, 0, 0);
                }
            float s0[4] = {}, s1[4] = {};
#pragma unroll
            for (int j = 0; j < kQ; j++) {
                mma(s0, qr[j].x, 0, qr[j].y, 0, k0[j].x, k0[j].y);
                mma(s1, qr[j].x, 0, qr[j].y, 0, k1[j].x, k1[j].y);
                mma(s0, qr[j].z, 0, qr[j].w, 0, k0[j].z, k0[j].w);
                mma(s1, qr[j].z, 0, qr[j].w, 0, k1[j].z, k1[j].w);
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
                const uint32_t *a = &v[h][0].x, *b = &v[h][1].x, *c = &v[h][2].x, *d = &v[h][3].x;
#pragma unroll
                for (int i = 0; i < 4; i++)
                    mma(o[h][i], __byte_perm(a[i], b[i], 0x5410), __byte_perm(a[i], b[i], 0x7632), __byte_perm(c[i], d[i], 0x5410),
                        __byte_perm(c[i], d[i], 0x7632), p0, p1);
            }
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
                store1(out + ((size_t)piece.row * heads + head) * D + e, sum / l);
            } else {
                part_out[((size_t)piece.part * heads + head) * D + e] = sum;
                if (e == 0) part_sum[(size_t)piece.part * heads + head] = make_float2(m, l);
            }
        }
        if (piece.part >= 0) {
            __threadfence();
            __syncthreads();
            if (threadIdx.x == 0) {
                int *a = arrived + piece.row * kv_heads + kv;
                last_one = atomicAdd(a, 1) == row.parts - 1;
                if (last_one) *a = 0;  // for the next layer
            }
            __syncthreads();
            if (last_one) {
                __threadfence();
                for (int i = threadIdx.x; i < group * D; i += blockDim.x) {
                    const int h = i / D, e = i % D, head = kv * group + h;
                    float m = -INFINITY, l = 0.f, sum = 0.f;
                    for (int p = row.first_part; p < row.first_part + row.parts; p++)
                        m = fmaxf(m, __ldcg(&part_sum[(size_t)p * heads + head]).x);
                    for (int p = row.first_part; p < row.first_part + row.parts; p++) {
                        const float2 ml = __ldcg(&part_sum[(size_t)p * heads + head]);
                        const float f = exp2f(ml.x - m);
                        l += f * ml.y, sum += f * __ldcg(&part_out[((size_t)p * heads + head) * D + e]);
                    }
                    store1(out + ((size_t)piece.row * heads + head) * D + e, sum / l);
                }
            }
        }
        __syncthreads();  // before the next item writes to shared memory
    }
}

#define DECODE(D)                                                                                                          \
    extern "C" __global__ void __launch_bounds__(128, 3) \
        decode_attention_##D(bf16 *out, const bf16 *q, int q_stride, const bf16 *k_cache, const bf16 *v_cache,             \
                             const Piece *pieces, const int *count, const Row *rows, const int *blocks, int heads,         \
                             int kv_heads, int block_size, float scale, float *part_out, float2 *part_sum, int *arrived) { \
        attend<D>(out, q, q_stride, k_cache, v_cache, pieces, count, rows, blocks, heads, kv_heads, block_size, scale,     \
                  part_out, part_sum, arrived);                                                                            \
    }
DECODE(64)
DECODE(128)
