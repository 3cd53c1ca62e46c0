// The argument of the products of src/stream.cu, and what follows a sum.
//
//   kGated     silu(gate) * up
//   kResidual  residual += y; x of the next product = residual * norm weight; and the
//              row's sum of squares. The norm's factor of a row is a factor of the
//              next product's row, which applies it (sums_in).
// Squares are added in fixed point, so that the order does not matter to a bit.
#pragma once
#include "common.cuh"

constexpr int kPlain = 0, kFloat = 1, kGated = 2, kResidual = 3;
constexpr float kFixed = 16777216.f;  // 2^24

struct Product {
    void *y;
    const bf16 *x, *w;
    const float *bias;
    int m, n, k;
    float *residual;
    const float *norm;                  // of the norm that follows
    unsigned long long *sums;           // of squares of the new residual, per row
    unsigned long long *sums_zero;      // to be cleared for a later product
    const unsigned long long *sums_in;  // of x's norm, or null
    float eps;
    int turn;  // see stream.cu
};

static __device__ inline float factor(const Product &p, int row) {
    return p.sums_in ? rsqrtf((float)p.sums_in[row] / kFixed / p.k + p.eps) : 1.f;
}

// finish stores the sum of one output. It returns the square of a residual.
template <int kMode>
static __device__ inline float finish(const Product &p, int row, int n, float sum) {
    const size_t at = (size_t)row * p.n + n;
    sum *= factor(p, row);
    if (p.bias) sum += p.bias[n];
    if (kMode == kPlain) store1((bf16 *)p.y + at, sum);
    if (kMode == kFloat) ((float *)p.y)[at] = sum;
    if (kMode != kResidual) return 0.f;
    sum += p.residual[at];
    p.residual[at] = sum;
    store1((bf16 *)p.y + at, sum * p.norm[n]);
    return sum * sum;
}

static __device__ inline void copy_async(void *dst, const bf16 *src) {
    const uint32_t d = (uint32_t)__cvta_generic_to_shared(dst);
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(d), "l"(src) : "memory");
}
