// rope_cache normalises (if asked) and rotates q and k of each token's fused row
// and writes k and v to the cache. A block has 8 warps, a warp takes a
// head; blockIdx.x is the token, blockIdx.y eight heads of its row. Values stay in
// float32 from the load to the one rounding of the store.
#include "common.cuh"

constexpr int kMaxPairs = 512;  // half of the widest head

template <typename T>
static __device__ inline void load(float (&v)[1], const T *p) { v[0] = load1(p); }

static __device__ inline void load(float (&v)[2], const float *p) {
    const float2 f = *reinterpret_cast<const float2 *>(p);
    v[0] = f.x, v[1] = f.y;
}

static __device__ inline void load(float (&v)[2], const bf16 *p) {
    const float2 f = unpack2(*reinterpret_cast<const uint32_t *>(p));
    v[0] = f.x, v[1] = f.y;
}

static __device__ inline void store(bf16 *p, const float (&v)[1]) { store1(p, v[0]); }
static __device__ inline void store(bf16 *p, const float (&v)[2]) { *reinterpret_cast<uint32_t *>(p) = pack2(v[0], v[1]); }

// head_of does one head, a warp's job, kWide elements at a time: dim is a multiple of twice
// that. w is the norm's weight or null, cache gets the result too unless it is null.
template <int kWide, typename T>
static __device__ void head_of(bf16 *y, bf16 *cache, const T *x, const float *w, const float2 *turn, int dim, float eps) {
    const int lane = threadIdx.x % 32, half = dim / 2;
    float scale = 1.f;
    if (w) {
        float sum = 0.f;
        for (int i = lane * kWide; i < dim; i += 32 * kWide) {
            float f[kWide];
            load(f, x + i);
#pragma unroll
            for (int j = 0; j < kWide; j++) sum += f[j] * f[j];
        }
        scale = rsqrtf(warp_sum(sum) / dim + eps);
    }
    for (int i = lane * kWide; i < half; i += 32 * kWide) {
        float a[kWide], b[kWide], ra[kWide], rb[kWide];
        load(a, x + i), load(b, x + i + half);
#pragma unroll
        for (int j = 0; j < kWide; j++) {
            if (w) a[j] *= scale * w[i + j], b[j] *= scale * w[i + j + half];
            const float2 t = turn[i + j];
            ra[j] = a[j] * t.x - b[j] * t.y, rb[j] = b[j] * t.x + a[j] * t.y;
        }
        store(y + i, ra), store(y + i + half, rb);
        if (cache) store(cache + i, ra), store(cache + i + half, rb);
    }
}

// value_of copies a head that is not rotated.
template <int kWide, typename T>
static __device__ void value_of(bf16 *y, bf16 *cache, const T *x, int dim) {
    for (int i = threadIdx.x % 32 * kWide; i < dim; i += 32 * kWide) {
        float f[kWide];
        load(f, x + i);
        store(y + i, f);
        if (cache) store(cache + i, f);
    }
}

// rope: T is float where a product left its sums, so that q, k and v are rounded once,
// behind the rotation; rotated has the layout of qkv and may be it.
template <typename T>
static __device__ void rope(bf16 *rotated, const T *qkv, bf16 *k_cache, bf16 *v_cache, const int *positions, const int *slots,
                            const float *inv_freq, const float *q_norm, const float *k_norm, int heads, int kv_heads, int dim,
                            float eps) {
    __shared__ float2 turn[kMaxPairs];
    ahead_done();
    let_next_start();
    const int token = blockIdx.x, half = dim / 2;
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
    const int slot = slots[token], kv = head < heads + kv_heads ? head - heads : head - heads - kv_heads;
    bf16 *cache = head < heads + kv_heads ? k_cache : v_cache;
    cache = head < heads || slot < 0 ? nullptr : cache + ((size_t)slot * kv_heads + kv) * dim;
    const bool even = half % 2 == 0;
    if (head >= heads + kv_heads) {
        if (even) value_of<2>(y, cache, x, dim);
        else value_of<1>(y, cache, x, dim);
        return;
    }
    const float *w = head < heads ? q_norm : k_norm;
    if (even) head_of<2>(y, cache, x, w, turn, dim, eps);
    else head_of<1>(y, cache, x, w, turn, dim, eps);
}

#define ROPE(NAME, T)                                                                                                  \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        NAME(bf16 *rotated, const T *qkv, bf16 *k_cache, bf16 *v_cache, const int *positions, const int *slots,        \
             const float *inv_freq, const float *q_norm, const float *k_norm, int heads, int kv_heads, int dim, float eps) { \
        rope(rotated, qkv, k_cache, v_cache, positions, slots, inv_freq, q_norm, k_norm, heads, kv_heads, dim, eps);   \
    }
ROPE(rope_cache, bf16)
ROPE(rope_cache_float, float)
