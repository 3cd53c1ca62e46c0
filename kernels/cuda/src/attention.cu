// Attention for any head width, block size and window: a warp for each token and
// head, keys and values from the cache only. It is the one that is always right;
// decode.cu and the attention library are faster where they apply.
#include "common.cuh"

constexpr int kMaxPer = 32;  // a head of 1024 elements, 32 a lane

extern "C" __global__ void __launch_bounds__(128)
    attention(bf16 *out, const bf16 *qkv, const bf16 *k_cache, const bf16 *v_cache, const int *positions, const int *seq_of,
              const int *table_at, const int *blocks, int tokens, int heads, int kv_heads, int dim, int block_size,
              int window, float scale) {
    ahead_done();
    let_next_start();
    const long unit = (long)blockIdx.x * 4 + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (unit >= (long)tokens * heads) return;
    const int token = unit / heads, head = unit % heads, kv = head / (heads / kv_heads);
    const bf16 *q = qkv + ((size_t)token * (heads + 2 * kv_heads) + head) * dim;
    const int *table = blocks + table_at[seq_of[token]];
    const int last = positions[token], first = window > 0 ? max(0, last - window + 1) : 0;
    float acc[kMaxPer] = {};
    float top = -INFINITY, total = 0.f;
    for (int base = first; base <= last; base += 32) {
        const int p = base + lane;
        float score = -INFINITY;
        if (p <= last) {
            const size_t slot = (size_t)table[p / block_size] * block_size + p % block_size;
            const bf16 *k = k_cache + (slot * kv_heads + kv) * dim;
            float s = 0.f;
            for (int d = 0; d < dim; d++) s += load1(q + d) * load1(k + d);
            score = s * scale;
        }
        const float high = fmaxf(top, warp_max(score));
        const float keep = expf(top - high), weight = expf(score - high);
        total = total * keep + warp_sum(weight);
        top = high;
#pragma unroll
        for (int j = 0; j < kMaxPer; j++) acc[j] *= keep;
        const int n = min(32, last - base + 1);
        for (int i = 0; i < n; i++) {
            const float w = __shfl_sync(0xffffffffu, weight, i);
            const int at = base + i;
            const size_t slot = (size_t)table[at / block_size] * block_size + at % block_size;
            const bf16 *v = v_cache + (slot * kv_heads + kv) * dim;
#pragma unroll
            for (int j = 0; j < kMaxPer; j++)
                if (j * 32 + lane < dim) acc[j] += w * load1(v + j * 32 + lane);
        }
    }
    bf16 *o = out + ((size_t)token * heads + head) * dim;
#pragma unroll
    for (int j = 0; j < kMaxPer; j++)
        if (j * 32 + lane < dim) store1(o + j * 32 + lane, acc[j] / total);
}
