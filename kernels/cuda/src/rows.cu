// Ops that treat each row by itself.
#include "common.cuh"

// copy_rows sets dst[i] = src[index[i]]; a row has cols elements. One block a row.
static __device__ void copy_row(bf16 *d, const bf16 *s, int cols) {
    if (cols % 8 == 0) {
        for (int i = threadIdx.x; i < cols / 8; i += blockDim.x)
            reinterpret_cast<uint4 *>(d)[i] = reinterpret_cast<const uint4 *>(s)[i];
        return;
    }
    for (int i = threadIdx.x; i < cols; i += blockDim.x) d[i] = s[i];
}

extern "C" __global__ void __launch_bounds__(256) copy_rows(bf16 *dst, const bf16 *src, const int *index, int cols) {
    ahead_done();
    let_next_start();
    copy_row(dst + (size_t)blockIdx.x * cols, src + (size_t)index[blockIdx.x] * cols, cols);
}

extern "C" __global__ void __launch_bounds__(256)
    copy_rows_float(float *dst, const bf16 *src, const int *index, int cols) {
    ahead_done();
    let_next_start();
    const bf16 *s = src + (size_t)index[blockIdx.x] * cols;
    float *d = dst + (size_t)blockIdx.x * cols;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) d[i] = load1(s + i);
}

// load8 reads 8 neighbours.
static __device__ inline void load8(float (&v)[8], const float *p) {
    const float4 a = reinterpret_cast<const float4 *>(p)[0], b = reinterpret_cast<const float4 *>(p)[1];
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

static __device__ inline void load8(float (&v)[8], const bf16 *p) {
    const uint4 a = *reinterpret_cast<const uint4 *>(p);
    const uint32_t w[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float2 f = unpack2(w[j]);
        v[2 * j] = f.x, v[2 * j + 1] = f.y;
    }
}

// norm: dst = x / sqrt(mean(x^2) + eps) * w, one block a row. With kAdd the row is x
// = x + add first, stored as float32.
template <bool kAdd, typename T>
static __device__ void norm(bf16 *dst, T *x, const bf16 *add, const float *w, int cols, float eps) {
    ahead_done();
    let_next_start();
    const size_t at = (size_t)blockIdx.x * cols;
    dst += at, x += at, add += at;
    float sum = 0.f;
    if (cols % 8 == 0 && cols / 8 <= blockDim.x) {  // the row fits in the block's registers
        const int i = threadIdx.x * 8;
        const bool mine = i < cols;
        float v[8];
        if (mine) {
            load8(v, x + i);
            if (kAdd) {
                float a[8];
                load8(a, add + i);
#pragma unroll
                for (int j = 0; j < 8; j++) v[j] += a[j];
#pragma unroll
                for (int j = 0; j < 8; j++) store1(x + i + j, v[j]);
            }
#pragma unroll
            for (int j = 0; j < 8; j++) sum += v[j] * v[j];
        }
        sum = block_sum(sum);
        if (!mine) return;
        const float scale = rsqrtf(sum / cols + eps);
        float f[8];
        load8(f, w + i);
        *reinterpret_cast<uint4 *>(dst + i) =
            make_uint4(pack2(v[0] * scale * f[0], v[1] * scale * f[1]), pack2(v[2] * scale * f[2], v[3] * scale * f[3]),
                       pack2(v[4] * scale * f[4], v[5] * scale * f[5]), pack2(v[6] * scale * f[6], v[7] * scale * f[7]));
        return;
    }
    for (int i = threadIdx.x; i < cols; i += blockDim.x) {
        float f = load1(x + i);
        if (kAdd) f += load1(add + i), store1(x + i, f);
        sum += f * f;
    }
    const float scale = rsqrtf(block_sum(sum) / cols + eps);
    for (int i = threadIdx.x; i < cols; i += blockDim.x) store1(dst + i, load1(x + i) * scale * w[i]);
}

extern "C" __global__ void __launch_bounds__(1024) rms_norm(bf16 *dst, bf16 *x, const float *w, int cols, float eps) {
    norm<false>(dst, x, dst, w, cols, eps);
}

extern "C" __global__ void __launch_bounds__(1024) rms_norm_float(bf16 *dst, float *x, const float *w, int cols, float eps) {
    norm<false>(dst, x, dst, w, cols, eps);
}

extern "C" __global__ void __launch_bounds__(1024)
    add_rms_norm(bf16 *dst, float *residual, const bf16 *x, const float *w, int cols, float eps) {
    norm<true>(dst, residual, x, w, cols, eps);
}

// scale_rows finishes a norm that stream.cu left unscaled: x = x * factor of its row.
extern "C" __global__ void __launch_bounds__(256)
    scale_rows(bf16 *x, const unsigned long long *sums, int cols, float eps) {
    ahead_done();
    let_next_start();
    const float scale = rsqrtf((float)sums[blockIdx.x] / 16777216.f / cols + eps);
    bf16 *row = x + (size_t)blockIdx.x * cols;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) store1(row + i, load1(row + i) * scale);
}

// silu_mul: dst[r][i] = silu(gate_up[r][i]) * gate_up[r][inner + i].
extern "C" __global__ void __launch_bounds__(256) silu_mul(bf16 *dst, const bf16 *gate_up, int rows, int inner) {
    ahead_done();
    let_next_start();
    const size_t n = (size_t)rows * inner;
    if (inner % 8 == 0) {
        const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
        if (i * 8 >= n) return;
        const size_t row = i * 8 / inner, col = i * 8 % inner;
        const bf16 *g = gate_up + row * 2 * inner + col;
        const uint4 a = *reinterpret_cast<const uint4 *>(g), b = *reinterpret_cast<const uint4 *>(g + inner);
        const uint32_t aw[4] = {a.x, a.y, a.z, a.w}, bw[4] = {b.x, b.y, b.z, b.w};
        uint32_t r[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float2 f = unpack2(aw[j]), u = unpack2(bw[j]);
            r[j] = pack2(silu(f.x) * u.x, silu(f.y) * u.y);
        }
        reinterpret_cast<uint4 *>(dst)[i] = make_uint4(r[0], r[1], r[2], r[3]);
        return;
    }
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        const size_t row = i / inner, col = i % inner;
        const bf16 *g = gate_up + row * 2 * inner + col;
        store1(dst + i, silu(load1(g)) * load1(g + inner));
    }
}
