// The few parts of the cuBLASLt interface that this package uses, written down
// here so that its 420 MB wheel is not needed to build. Values are those of
// cublasLt.h 13.1; nothing compares them automatically.
#ifndef WAYBILL_LT_H
#define WAYBILL_LT_H
#include <stddef.h>
#include <stdint.h>

enum {
    lt_compute_32f = 68,
    lt_type_32f = 0,
    lt_type_bf16 = 14,
    lt_op_t = 1,
    lt_desc_transa = 3,
    lt_desc_epilogue = 7,
    lt_desc_bias_pointer = 8,
    lt_epilogue_bias = 4,
    lt_layout_cols = 3,
    lt_pref_max_workspace = 1,
};

typedef struct { uint64_t data[8]; } lt_algo;

typedef struct {
    lt_algo algo;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} lt_heuristic;

// One product y[m][n] = sum_k x[m][k] * w[n][k] (+ bias[n]): x and w bf16, y and bias
// bf16 or float32, float32 sums. m is set for each run. add says that y is added to.
typedef struct {
    void *op, *a, *b, *c;
    lt_algo algo;
    size_t workspace;
} lt_plan;

// Opens the library and makes a handle for the current device. 0, or a
// cublasStatus_t, or -1 when the library is not there (text in err).
int lt_open(void **handle, char *err, size_t n);
size_t lt_version(void);
int lt_plan_make(void *handle, lt_plan *p, uint64_t m, uint64_t n, uint64_t k, int out_type, int bias,
                 size_t max_workspace);
int lt_run(void *handle, const lt_plan *p, uint64_t m, uint64_t x, uint64_t w, uint64_t bias, uint64_t y, int add,
           uint64_t workspace, void *stream);
void lt_plan_free(lt_plan *p);
#endif
