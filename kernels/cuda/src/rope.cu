// rope_cache normalises (if asked) and rotates q and k of each token's fused row
// and writes k and v to the cache. A block has 8 warps, a warp takes a
// head; blockIdx.x is the token, blockIdx.y eight heads of its row. Values stay in
// float32 from the load to the one rounding of the store.
#include "common.cuh"

constexpr int kMaxPairs = 512;  // half of the widest head

// rope: T is float where a product left its sums, so that q, k and v are rounded once,
// behind the rotation; rotated has the layout of qkv and may be it.
template <typename T>
static __device__ void rope(bf16 *rotated, const T *qkv, bf16 *k_cache, bf16 *v_cache, const int *positions, const int *slots,
                            const float *inv_freq, const float *q_norm, const float *k_norm, int heads, int kv_heads, int dim,
                            float eps) {
    __shared__ float2 turn[kMaxPairs];
    ahead_done();
    let_next_start();
    const int token = blockIdx.x, half = dim / 2, lane = threadIdx.x % 32;
    const float pos = (float)positions[token];
    for (int i = threadIdx.x; i < half; i += blockDim.x) {
        // The angle is rounded to float32 as the models' own code does.
        float s, c;
        sincosf(__fmul_rn(pos, inv_freq[i]), &s, &c);
        turn[i] = make_float2(c, s);
    }
    __syncthreads();
    const int head = blockIdx.y * 8 + threadIdx.x / 32;
    if (head >= heads + 2 * kv_heads) return;
    const size_t at = ((size_t)token * (heads + 2 * kv_heads) + head) * dim;
    const T *x = qkv + at;
    bf16 *y = rotated + at;
    const int slot = slots[token];
    if (head >= heads + kv_heads) {
        bf16 *v = slot < 0 ? nullptr : v_cache + ((size_t)slot * kv_heads + head - heads - kv_heads) * dim;
        for (int i = lane; i < dim; i += 32) {
            const bf16 f = __float2bfloat16(load1(x + i));
            y[i] = f;
            if (v) v[i] = f;
        }
        return;
    }
    const float *w = head < heads ? q_norm : k_norm;
    float scale = 1.f;
    if (w) {
        float sum = 0.f;
        for (int i = lane; i < dim; i += 32) {
            const float f = load1(x + i);
            sum += f * f;
        }
        scale = rsqrtf(warp_sum(sum) / dim + eps);
    }
    bf16 *k = head < heads || slot < 0 ? nullptr : k_cache + ((size_t)slot * kv_heads + head - heads) * dim;
    for (int i = lane; i < half; i += 32) {
        float a = load1(x + i), b = load1(x + i + half);
        if (w) a *= scale * w[i], b *= scale * w[i + half];
        const float2 t = turn[i];
        const bf16 ra = __float2bfloat16(a * t.x - b * t.y), rb = __float2bfloat16(b * t.x + a * t.y);
        y[i] = ra, y[i + half] = rb;
        if (k) k[i] = ra, k[i + half] = rb;
    }
}

#define ROPE(NAME, T)                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        NAME(bf16 *rotated, const T *qkv, bf16 *k_cache, bf16 *v_cache, const int *positions, const int *slots,        \
             const float *inv_freq, const float *q_norm, const float *k_norm, int heads, int kv_heads, int dim, float eps) { \
        rope(rotated, qkv, k_cache, v_cache, positions, slots, inv_freq, q_norm, k_norm, heads, kv_heads, dim, eps);   \
    }
ROPE(rope_cache, bf16)
ROPE(rope_cache_float, float)
