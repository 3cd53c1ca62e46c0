// The same on Hopper's own instructions: wgmma, and the copy engine for q. It
// needs the cutlass headers, so it takes some 90 s to compile.
#include "common.cuh"
#include <flashinfer/attention/hopper/default_params.cuh>
#include <flashinfer/attention/hopper/prefill_sm90.cuh>
#include <flashinfer/attention/hopper/variants.cuh>

using namespace flashinfer;
// This header and the one of fa2.cu define different structs of one name in one
// namespace, so the two paths cannot share a file.
using elem = cutlass::bfloat16_t;  // bf16's bits; the wgmma selectors know only this name
using Params = BatchPrefillPagedParams<elem, elem, elem, int32_t>;
constexpr uint32_t kHeadDim = 128;

extern "C" int attn_sm90_plan(const attn_shape *s, const int32_t *qo_indptr, const int32_t *kv_indptr,
                              const int32_t *kv_len, attn_plan *out) {
    return guarded([&]() -> cudaError_t {
        PrefillPlanSM90Info info;
        cudaError_t r = PrefillSM90Plan<int32_t>(
            s->float_ws, s->float_ws_bytes, s->int_ws, s->int_ws_host, s->int_ws_bytes, info,
            const_cast<int32_t *>(qo_indptr), const_cast<int32_t *>(kv_indptr), const_cast<int32_t *>(kv_len),
            qo_indptr[s->batch], s->batch, s->q_heads, s->kv_heads, kHeadDim, kHeadDim, s->page_size, /*causal=*/true,
            /*enable_cuda_graph=*/false, sizeof(bf16), stream_of(s));
        if (r == cudaSuccess) store(info, out);
        return r;
    });
}

extern "C" int attn_sm90_run(const attn_shape *s, const attn_plan *p, const attn_io *io) {
    return guarded([&]() -> cudaError_t {
        const auto info = restore<PrefillPlanSM90Info>(p, 9);
        Params a{};
        a.q_ptr = static_cast<elem *>(const_cast<void *>(io->q));
        a.k_ptr = static_cast<elem *>(const_cast<void *>(io->k_pages));
        a.v_ptr = static_cast<elem *>(const_cast<void *>(io->v_pages));
        a.o_ptr = static_cast<elem *>(io->out);
        a.lse_ptr = nullptr;
        a.additional_params.sm_scale = s->sm_scale;
        a.q_stride_n = s->q_stride;
        a.o_stride_n = int64_t(s->q_heads) * kHeadDim;
        a.q_stride_h = a.o_stride_h = kHeadDim;
        a.k_stride_n = a.v_stride_n = int64_t(s->kv_heads) * kHeadDim;
        a.k_stride_h = a.v_stride_h = kHeadDim;
        a.k_page_stride = a.v_page_stride = int64_t(s->page_size) * s->kv_heads * kHeadDim;
        a.nnz_qo = s->rows;
        a.num_qo_heads = s->q_heads;
        a.num_kv_heads = s->kv_heads;
        a.group_size = s->q_heads / s->kv_heads;
        a.page_size = s->page_size;
        a.window_left = -1;
        a.causal = true;
        a.qo_tile_indices = at<int32_t>(s->int_ws, info.qo_tile_indices_offset);
        a.qo_indptr = at<int32_t>(s->int_ws, info.qo_indptr_offset);
        a.kv_indptr = at<int32_t>(s->int_ws, info.kv_indptr_offset);
        a.qo_lens = at<int32_t>(s->int_ws, info.qo_len_offset);
        a.kv_lens = at<int32_t>(s->int_ws, info.kv_len_offset);
        a.head_indices = at<int32_t>(s->int_ws, info.head_indices_offset);
        a.work_indptr = at<int32_t>(s->int_ws, info.work_indptr_offset);
        a.batch_indices = at<int32_t>(s->int_ws, info.batch_indices_offset);
        a.kv_indices = const_cast<int32_t *>(io->kv_indices);
        // More than 4096 tiles a head make the planner share one schedule among heads.
        if (info.same_schedule_for_all_heads)
            return BatchPrefillWithPagedKVCacheDispatched<kHeadDim, kHeadDim, MaskMode::kCausal, false, true,
                                                          StandardAttention>(a, /*enable_pdl=*/false, stream_of(s));
        return BatchPrefillWithPagedKVCacheDispatched<kHeadDim, kHeadDim, MaskMode::kCausal, false, false,
                                                      StandardAttention>(a, /*enable_pdl=*/false, stream_of(s));
    });
}
