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

// rope_128 is rope for heads of 128 elements in float32, a block a token. A lane holds two pairs of a head, and a warp
// has up to kAhead heads on their way: with one, and each read twice, a prefill's rows came at 1.8 TB/s (H200).
constexpr int kAhead = 6;

struct norm_of { float2 low, high; };

static __device__ inline norm_of norm_at(const float *w, int lane) {
    if (!w) return {{1.f, 1.f}, {1.f, 1.f}};
    return {reinterpret_cast<const float2 *>(w)[lane], reinterpret_cast<const float2 *>(w + 64)[lane]};
}

extern "C" __global__ void __launch_bounds__(256, 4)
    rope_cache_float_128(bf16 *rotated, const float *qkv, bf16 *k_cache, bf16 *v_cache, const int *positions, const int *slots,
                         const float *inv_freq, const float *q_norm, const float *k_norm, int heads, int kv_heads, int,
                         float eps) {
    constexpr int dim = 128, half = dim / 2, warps = 8;
    __shared__ float2 turn[half];
    const int token = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32, all = heads + 2 * kv_heads;
    ahead_done();
    let_next_start();
    const float *x = qkv + (size_t)token * all * dim + 2 * lane;
    bf16 *y = rotated + (size_t)token * all * dim + 2 * lane;
    if (threadIdx.x < half) {
        float s, c;
        sincosf(__fmul_rn((float)positions[token], inv_freq[threadIdx.x]), &s, &c);
        turn[threadIdx.x] = make_float2(c, s);
    }
    const int slot = slots[token];
    const norm_of nq = norm_at(q_norm, lane), nk = norm_at(k_norm, lane);
    int first = warp;
    do {
        float2 a[kAhead], b[kAhead];
#pragma unroll
        for (int j = 0; j < kAhead; j++) {
            const int head = first + j * warps;
            if (head >= all) break;
            a[j] = *reinterpret_cast<const float2 *>(x + head * dim), b[j] = *reinterpret_cast<const float2 *>(x + head * dim + half);
        }
        if (first == warp) __syncthreads();
        const float2 t0 = turn[2 * lane], t1 = turn[2 * lane + 1];
#pragma unroll
        for (int j = 0; j < kAhead; j++) {
            const int head = first + j * warps;
            if (head >= all) break;
            const bool query = head < heads, value = head >= heads + kv_heads;
            if (!value) {
                const norm_of &n = query ? nq : nk;
                float scale = 1.f;
                if (query ? q_norm : k_norm)
                    scale = rsqrtf(warp_sum(a[j].x * a[j].x + a[j].y * a[j].y + b[j].x * b[j].x + b[j].y * b[j].y) / dim + eps);
                const float2 l = make_float2(a[j].x * (scale * n.low.x), a[j].y * (scale * n.low.y));
                const float2 h = make_float2(b[j].x * (scale * n.high.x), b[j].y * (scale * n.high.y));
                a[j] = make_float2(l.x * t0.x - h.x * t0.y, l.y * t1.x - h.y * t1.y);
                b[j] = make_float2(h.x * t0.x + l.x * t0.y, h.y * t1.x + l.y * t1.y);
            }
            const uint32_t low = pack2(a[j].x, a[j].y), high = pack2(b[j].x, b[j].y);
            *reinterpret_cast<uint32_t *>(y + head * dim) = low, *reinterpret_cast<uint32_t *>(y + head * dim + half) = high;
            if (query || slot < 0) continue;
            bf16 *cache = (value ? v_cache : k_cache) + ((size_t)slot * kv_heads + head - heads - (value ? kv_heads : 0)) * dim + 2 * lane;
            *reinterpret_cast<uint32_t *>(cache) = low, *reinterpret_cast<uint32_t *>(cache + half) = high;
        }
        first += warps * kAhead;
    } while (first < all);
}
