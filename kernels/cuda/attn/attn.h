// C ABI of the attention library: plain pointers and integers, so that the Go
// side needs to know neither CUDA nor C++.
//
// Cache: k and v are [pages][page_size][kv_heads][head_dim] bf16. q is
// [rows][q_heads][head_dim] bf16 with q_stride elements between rows, out the
// same without gaps. Index arrays are int32: indptr has batch+1 entries,
// last_len has batch.
#ifndef WAYBILL_ATTN_H
#define WAYBILL_ATTN_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ATTN_API __attribute__((visibility("default")))

typedef struct {
    int32_t batch, q_heads, kv_heads, head_dim, page_size;
    int32_t rows;          // query rows of the batch
    int64_t q_stride;
    float sm_scale;
    void *float_ws;        // device, partial results of split contexts
    size_t float_ws_bytes;
    void *int_ws;          // device, the plan's index arrays
    void *int_ws_host;     // pinned host twin of int_ws
    size_t int_ws_bytes;
    void *stream;          // CUstream
} attn_shape;

typedef struct { int64_t v[16]; } attn_plan;

typedef struct {
    const void *q;
    const void *k_pages, *v_pages;
    const int32_t *qo_indptr, *kv_indptr, *kv_indices, *kv_last_len;  // device
    void *out;
} attn_io;

// All return 0 or a cudaError_t; -1 when the library threw (text in attn_error()).
// A plan is made on the host and queues one upload from int_ws_host, which must
// not change until it was read. It serves all layers of a step.
ATTN_API int attn_fa2_plan(const attn_shape *s, const int32_t *qo_indptr, const int32_t *kv_indptr, attn_plan *out);
ATTN_API int attn_fa2_run(const attn_shape *s, const attn_plan *p, const attn_io *io);
// The Hopper kernel: head_dim 128 only. kv_len is the length of each context.
ATTN_API int attn_sm90_plan(const attn_shape *s, const int32_t *qo_indptr, const int32_t *kv_indptr,
                            const int32_t *kv_len, attn_plan *out);
ATTN_API int attn_sm90_run(const attn_shape *s, const attn_plan *p, const attn_io *io);
ATTN_API const char *attn_error(void);

#ifdef __cplusplus
}
#endif
#endif
