// What the kernels for compute capability 9.0 share: barriers in shared memory, the copy engine and the operands of
// wgmma.
#pragma once
#include "common.cuh"

// tensor_map is a CUtensorMap.
struct alignas(64) tensor_map { uint64_t words[16]; };

#if __CUDA_ARCH_FEAT_SM90_ALL

static __device__ inline uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

static __device__ inline void barrier_init(uint32_t bar, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count));
}

static __device__ inline void barrier_expect(uint32_t bar, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

static __device__ inline void barrier_wait(uint32_t bar, int parity) {
    asm volatile(
        "{\n.reg .pred p;\nagain:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
        "@p bra done;\nbra again;\ndone:\n}" ::"r"(bar), "r"(parity) : "memory");
}

// fetch brings a box of a matrix to this block.
static __device__ inline void fetch(uint32_t to, const tensor_map *map, int col, int row, uint32_t bar) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
        "l"(map), "r"(bar), "r"(col), "r"(row) : "memory");
}

// operand describes rows of 64 elements, 128 bytes swizzled, to wgmma.
static __device__ inline uint64_t operand(uint32_t at) {
    return (uint64_t)(at >> 4 & 0x3fff) | 1ull << 16 | (uint64_t)(1024 >> 4) << 32 | 1ull << 62;
}

#define D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define D8(i) D4(i), D4(i + 4)

#endif
