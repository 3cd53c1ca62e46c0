// y[m][n] = sum_k x[m][k] * w[n][k] (+ bias[n]) for any shape: a warp for each
// output. Only shapes that the fast paths refuse come here.
#include "common.cuh"

template <typename T>
static __device__ void product(T *y, const bf16 *x, const bf16 *w, const float *bias, int m, int n, int k) {
    ahead_done();
    let_next_start();
    const long unit = (long)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (unit >= (long)m * n) return;
    const int row = unit / n, col = unit % n;
    float sum = 0.f;
    for (int i = lane; i < k; i += 32) sum += load1(x + (size_t)row * k + i) * load1(w + (size_t)col * k + i);
    sum = warp_sum(sum);
    if (lane == 0) store1(y + unit, sum + (bias ? bias[col] : 0.f));
}

extern "C" __global__ void __launch_bounds__(256)
    matmul_bf16(bf16 *y, const bf16 *x, const bf16 *w, const float *bias, int m, int n, int k) {
    product(y, x, w, bias, m, n, k);
}

extern "C" __global__ void __launch_bounds__(256)
    matmul_f32(float *y, const bf16 *x, const bf16 *w, const float *bias, int m, int n, int k) {
    product(y, x, w, bias, m, n, k);
}
