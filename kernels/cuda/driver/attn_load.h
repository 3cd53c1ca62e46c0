// What attn.go sees of the attention library.
#ifndef WAYBILL_ATTN_LOAD_H
#define WAYBILL_ATTN_LOAD_H
#include "../attn/attn.h"

int attn_load(const void *image, size_t size, char *err, size_t n);
int attn_make_plan(int hopper, const attn_shape *s, const int32_t *qo, const int32_t *kv, const int32_t *len,
                   attn_plan *p);
int attn_run_plan(int hopper, const attn_shape *s, const attn_plan *p, const attn_io *io);
const char *attn_last(void);
#endif
