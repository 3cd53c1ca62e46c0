// What all kernels share: element conversion, reductions within a block, and the
// two instructions of dependent launch.
//
// Every kernel may be launched before the one ahead of it in the stream has
// ended, or even begun to work. It therefore calls ahead_done() before it reads or
// writes anything that another kernel of the step touches. Before that it may read
// weights, the step's tables (bind.cu), and keys and values of earlier steps.
#pragma once
#include <cuda_bf16.h>
#include <stdint.h>

using bf16 = __nv_bfloat16;

__device__ inline void ahead_done() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ inline void let_next_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

__device__ inline float2 unpack2(uint32_t v) {
    return make_float2(__uint_as_float(v << 16), __uint_as_float(v & 0xffff0000u));
}

__device__ inline uint32_t pack2(float lo, float hi) {
    __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
    return *reinterpret_cast<uint32_t *>(&v);
}

__device__ inline float load1(const bf16 *p) { return __bfloat162float(*p); }
__device__ inline float load1(const float *p) { return *p; }
__device__ inline void store1(bf16 *p, float v) { *p = __float2bfloat16(v); }
__device__ inline void store1(float *p, float v) { *p = v; }

// narrow8 reads 8 neighbours, rounded to bf16.
__device__ inline uint4 narrow8(const bf16 *p) { return *reinterpret_cast<const uint4 *>(p); }

__device__ inline uint4 narrow8(const float *p) {
    const float4 a = reinterpret_cast<const float4 *>(p)[0], b = reinterpret_cast<const float4 *>(p)[1];
    return make_uint4(pack2(a.x, a.y), pack2(a.z, a.w), pack2(b.x, b.y), pack2(b.z, b.w));
}

// order maps floats to integers of the same order. Both zeros are one.
__device__ inline unsigned order(float f) {
    const unsigned b = __float_as_uint(__fadd_rn(f, 0.f));
    return b & 0x80000000u ? ~b : b | 0x80000000u;
}

__device__ inline float silu(float g) { return g / (1.f + __expf(-g)); }

__device__ inline float warp_sum(float v) {
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
    return v;
}

__device__ inline float warp_max(float v) {
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, d));
    return v;
}

// block_sum adds v over all threads of a block of at most 1024; every thread gets
// the sum.
__device__ inline float block_sum(float v) {
    __shared__ float part[32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = (blockDim.x + 31) / 32;
    v = warp_sum(v);
    if (lane == 0) part[warp] = v;
    __syncthreads();
    v = warp_sum(lane < warps ? part[lane] : 0.f);
    __syncthreads();
    return v;
}

// mma multiplies 16x16 by 16x8, bf16, and adds to d in float32.
__device__ inline void mma(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
