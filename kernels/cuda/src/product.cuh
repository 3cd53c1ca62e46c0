// The argument of the products of stream.cu and wide.cu, and what follows a sum.
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

// finish stores one output: sum times scale, the factor of the row. With kResidual, old is the residual there and weight
// that of the norm; it returns the new residual.
template <int kMode>
static __device__ inline float finish(const Product &p, int row, int n, float sum, float scale, float bias, float old, float weight) {
    const size_t at = (size_t)row * p.n + n;
    sum = sum * scale + bias;
    if (kMode == kPlain) store1((bf16 *)p.y + at, sum);
    if (kMode == kFloat) ((float *)p.y)[at] = sum;
    if (kMode != kResidual) return 0.f;
    sum += old;
    p.residual[at] = sum;
    store1((bf16 *)p.y + at, sum * weight);
    return sum;
}

// Output is one element of y and what it takes beside a sum. All of that is read ahead of the sums: behind them every
// read is a round trip to memory for which the next kernel waits too.
template <int kMode>
struct Output {
    int row, n;
    float scale = 1.f, bias = 0.f, norm = 0.f, residual = 0.f;

    // read_parameters may come ahead of ahead_done().
    __device__ inline void read_parameters(const Product &p) {
        if (kMode == kGated) return;
        if (p.bias) bias = p.bias[n];
        if (kMode == kResidual) norm = p.norm[n];
    }

    __device__ inline void read_activations(const Product &p) {
        scale = factor(p, row);
        if (kMode == kResidual) residual = p.residual[(size_t)row * p.n + n];
    }

    // store stores the output of a sum. It returns the square of a residual.
    __device__ inline float store(const Product &p, float sum) const {
        const float r = finish<kMode>(p, row, n, sum, scale, bias, residual, norm);
        return r * r;
    }

    // store_gated stores the activation of two sums.
    __device__ inline void store_gated(const Product &p, float gate, float up) const {
        store1((bf16 *)p.y + (size_t)row * (p.n / 2) + n, silu(gate * scale) * (up * scale));
    }
};

static __device__ inline void copy_async(void *dst, const bf16 *src) {
    const uint32_t d = (uint32_t)__cvta_generic_to_shared(dst);
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(d), "l"(src) : "memory");
}
