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

// norm_row is the second half of both norms: v are the row's values.
// rms_norm: dst = x / sqrt(mean(x^2) + eps) * w. With x2 the row is residual = x +
// x2 first, rounded as it is stored.
template <bool kAdd>
static __device__ void norm(bf16 *dst, bf16 *x, const bf16 *x2, const float *w, int cols, float eps) {
    ahead_done();
    let_next_start();
    const size_t at = (size_t)blockIdx.x * cols;
    dst += at, x += at, x2 += at;
    float sum = 0.f;
    if (cols % 8 == 0 && cols / 8 <= blockDim.x) {  // the row fits in the block's registers
        const int i = threadIdx.x;
        const bool mine = i < cols / 8;
        float v[8];
        if (mine) {
            const uint4 a = reinterpret_cast<const uint4 *>(x)[i];
            const uint32_t aw[4] = {a.x, a.y, a.z, a.w};
            uint32_t bw[4] = {};
            if (kAdd) {
                const uint4 b = reinterpret_cast<const uint4 *>(x2)[i];
                bw[0] = b.x, bw[1] = b.y, bw[2] = b.z, bw[3] = b.w;
            }
            uint32_t r[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float2 f = unpack2(aw[j]);
                if (kAdd) {
                    const float2 g = unpack2(bw[j]);
                    r[j] = pack2(f.x + g.x, f.y + g.y);
                    f = unpack2(r[j]);
                }
                v[2 * j] = f.x, v[2 * j + 1] = f.y;
                sum += f.x * f.x + f.y * f.y;
            }
            if (kAdd) reinterpret_cast<uint4 *>(x)[i] = make_uint4(r[0], r[1], r[2], r[3]);
        }
        sum = block_sum(sum);
        if (!mine) return;
        const float scale = rsqrtf(sum / cols + eps);
        const float4 w0 = reinterpret_cast<const float4 *>(w)[2 * i], w1 = reinterpret_cast<const float4 *>(w)[2 * i + 1];
        reinterpret_cast<uint4 *>(dst)[i] =
            make_uint4(pack2(v[0] * scale * w0.x, v[1] * scale * w0.y), pack2(v[2] * scale * w0.z, v[3] * scale * w0.w),
                       pack2(v[4] * scale * w1.x, v[5] * scale * w1.y), pack2(v[6] * scale * w1.z, v[7] * scale * w1.w));
        return;
    }
    for (int i = threadIdx.x; i < cols; i += blockDim.x) {
        float f = load1(x + i);
        if (kAdd) {
            const bf16 r = __float2bfloat16(f + load1(x2 + i));
            x[i] = r;
            f = __bfloat162float(r);
        }
        sum += f * f;
    }
    const float scale = rsqrtf(block_sum(sum) / cols + eps);
    for (int i = threadIdx.x; i < cols; i += blockDim.x) store1(dst + i, load1(x + i) * scale * w[i]);
}

extern "C" __global__ void __launch_bounds__(1024) rms_norm(bf16 *dst, bf16 *x, const float *w, int cols, float eps) {
    norm<false>(dst, x, x, w, cols, eps);
}

extern "C" __global__ void __launch_bounds__(1024)
    add_rms_norm(bf16 *dst, bf16 *residual, const bf16 *x, const float *w, int cols, float eps) {
    norm<true>(dst, residual, x, w, cols, eps);
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
