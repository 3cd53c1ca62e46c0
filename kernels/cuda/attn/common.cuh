// Shared by fa2.cu and sm90.cu: types chosen once, errors turned into codes.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <exception>
#include <string>
#include <vector>

#include "attn.h"

#include <flashinfer/attention/scheduler.cuh>
#include <flashinfer/page.cuh>

using bf16 = __nv_bfloat16;
using Cache = flashinfer::paged_kv_t<bf16, int32_t>;

extern thread_local std::string attn_last_error;

template <typename F>
int guarded(F f) {
    try {
        cudaError_t r = f();
        if (r != cudaSuccess) attn_last_error = cudaGetErrorString(r);
        return static_cast<int>(r);
    } catch (const std::exception &e) {
        attn_last_error = e.what();
        return -1;
    }
}

inline cudaStream_t stream_of(const attn_shape *s) { return static_cast<cudaStream_t>(s->stream); }

template <typename T>
T *at(void *base, int64_t offset) { return reinterpret_cast<T *>(static_cast<char *>(base) + offset); }

template <typename Info>
void store(const Info &info, attn_plan *out) {
    const std::vector<int64_t> v = info.ToVector();
    for (size_t i = 0; i < 16; i++) out->v[i] = i < v.size() ? v[i] : 0;
}

template <typename Info>
Info restore(const attn_plan *p, size_t n) {
    Info info;
    info.FromVector(std::vector<int64_t>(p->v, p->v + n));
    return info;
}
