// Any number of query rows per sequence, causal, paged cache, on mma.sync. Every
// architecture from sm_80 has it.
#include "common.cuh"
#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/variants.cuh>

using namespace flashinfer;
using Params = BatchPrefillPagedParams<bf16, bf16, bf16, int32_t>;
// no custom mask, no sliding window, no soft cap, no alibi
using Variant = DefaultAttention<false, false, false, false>;

thread_local std::string attn_last_error;

extern "C" const char *attn_error(void) { return attn_last_error.c_str(); }

extern "C" int attn_fa2_plan(const attn_shape *s, const int32_t *qo_indptr, const int32_t *kv_indptr, attn_plan *out) {
    return guarded([&]() -> cudaError_t {
        PrefillPlanInfo info;
        cudaError_t r = PrefillPlan<int32_t>(
            s->float_ws, s->float_ws_bytes, s->int_ws, s->int_ws_host, s->int_ws_bytes, info,
            const_cast<int32_t *>(qo_indptr), const_cast<int32_t *>(kv_indptr), qo_indptr[s->batch], s->batch,
            s->q_heads, s->kv_heads, s->head_dim, s->head_dim, s->page_size, /*enable_cuda_graph=*/false, sizeof(bf16),
            /*window_left=*/-1, /*fixed_split_size=*/-1, /*disable_split_kv=*/false, /*num_colocated_ctas=*/0,
            stream_of(s));
        if (r == cudaSuccess) store(info, out);
        return r;
    });
}

template <uint32_t kHeadDim>
static cudaError_t run(const attn_shape *s, const attn_plan *p, const attn_io *io) {
    const auto info = restore<PrefillPlanInfo>(p, 15);
    Cache cache(s->kv_heads, s->page_size, kHeadDim, s->batch, QKVLayout::kNHD,
                static_cast<bf16 *>(const_cast<void *>(io->k_pages)), static_cast<bf16 *>(const_cast<void *>(io->v_pages)),
                const_cast<int32_t *>(io->kv_indices), const_cast<int32_t *>(io->kv_indptr),
                const_cast<int32_t *>(io->kv_last_len));
    Params a(static_cast<bf16 *>(const_cast<void *>(io->q)), cache, nullptr, const_cast<int32_t *>(io->qo_indptr), nullptr,
             nullptr, static_cast<bf16 *>(io->out), nullptr, nullptr, s->q_heads, s->q_stride, kHeadDim,
             /*window_left=*/-1, 0.f, s->sm_scale, 1.f, 1e4f);
    a.request_indices = at<int32_t>(s->int_ws, info.request_indices_offset);
    a.qo_tile_indices = at<int32_t>(s->int_ws, info.qo_tile_indices_offset);
    a.kv_tile_indices = at<int32_t>(s->int_ws, info.kv_tile_indices_offset);
    a.o_indptr = at<int32_t>(s->int_ws, info.o_indptr_offset);
    a.kv_chunk_size_ptr = at<int32_t>(s->int_ws, info.kv_chunk_size_ptr_offset);
    bf16 *part_v = nullptr;
    float *part_s = nullptr;
    if (info.split_kv) {
        a.merge_indptr = at<int32_t>(s->int_ws, info.merge_indptr_offset);
        part_v = at<bf16>(s->float_ws, info.v_offset);
        part_s = at<float>(s->float_ws, info.s_offset);
    }
    a.padded_batch_size = info.padded_batch_size;
    a.max_total_num_rows = info.total_num_rows;
    cudaError_t r = cudaErrorInvalidValue;
    DISPATCH_CTA_TILE_Q(info.cta_tile_q, TILE, {
        r = BatchPrefillWithPagedKVCacheDispatched<TILE, kHeadDim, kHeadDim, PosEncodingMode::kNone, false,
                                                   MaskMode::kCausal, Variant, Params>(a, part_v, part_s,
                                                                                       /*enable_pdl=*/false, stream_of(s));
    });
    return r;
}

extern "C" int attn_fa2_run(const attn_shape *s, const attn_plan *p, const attn_io *io) {
    return guarded([&]() -> cudaError_t {
        switch (s->head_dim) {
        case 64: return run<64>(s, p, io);
        case 128: return run<128>(s, p, io);
        default: return cudaErrorInvalidValue;
        }
    });
}
