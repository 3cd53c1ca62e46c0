//go:build cuda

// cuBLASLt through dlopen: a machine without it still starts the program.

#include "lt.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static struct {
    int (*cublasLtCreate)(void **);
    size_t (*cublasLtGetVersion)(void);
    int (*cublasLtMatmulDescCreate)(void **, int compute, int scale_type);
    int (*cublasLtMatmulDescSetAttribute)(void *, int attr, const void *, size_t);
    int (*cublasLtMatmulDescDestroy)(void *);
    int (*cublasLtMatrixLayoutCreate)(void **, int type, uint64_t rows, uint64_t cols, int64_t ld);
    int (*cublasLtMatrixLayoutSetAttribute)(void *, int attr, const void *, size_t);
    int (*cublasLtMatrixLayoutDestroy)(void *);
    int (*cublasLtMatmulPreferenceCreate)(void **);
    int (*cublasLtMatmulPreferenceSetAttribute)(void *, int attr, const void *, size_t);
    int (*cublasLtMatmulPreferenceDestroy)(void *);
    int (*cublasLtMatmulAlgoGetHeuristic)(void *, void *, void *, void *, void *, void *, void *, int, lt_heuristic *,
                                          int *);
    int (*cublasLtMatmul)(void *, void *, const void *alpha, const void *a, void *, const void *b, void *,
                          const void *beta, const void *c, void *, void *d, void *, const lt_algo *, void *, size_t,
                          void *stream);
} lt;

int lt_open(void **handle, char *err, size_t n) {
    void *lib = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
    if (!lib) {
        snprintf(err, n, "%s", dlerror());
        return -1;
    }
#define FIND(f)                                      \
    if (!(*(void **)&lt.f = dlsym(lib, #f))) {       \
        snprintf(err, n, "no %s in libcublasLt", #f); \
        return -1;                                   \
    }
    FIND(cublasLtCreate)
    FIND(cublasLtGetVersion)
    FIND(cublasLtMatmulDescCreate)
    FIND(cublasLtMatmulDescSetAttribute)
    FIND(cublasLtMatmulDescDestroy)
    FIND(cublasLtMatrixLayoutCreate)
    FIND(cublasLtMatrixLayoutSetAttribute)
    FIND(cublasLtMatrixLayoutDestroy)
    FIND(cublasLtMatmulPreferenceCreate)
    FIND(cublasLtMatmulPreferenceSetAttribute)
    FIND(cublasLtMatmulPreferenceDestroy)
    FIND(cublasLtMatmulAlgoGetHeuristic)
    FIND(cublasLtMatmul)
#undef FIND
    return lt.cublasLtCreate(handle);
}

size_t lt_version(void) { return lt.cublasLtGetVersion(); }

// The library is column-major. Read that way, w is k x n, x is k x m and y is
// n x m, so y = transpose(w) * x.
int lt_plan_make(void *handle, lt_plan *p, uint64_t m, uint64_t n, uint64_t k, int out_type, int bias,
                 size_t max_workspace) {
    const int transposed = lt_op_t, epilogue = lt_epilogue_bias;
    void *pref = NULL;
    lt_heuristic best;
    int r, found = 0;
    memset(p, 0, sizeof *p);
    if ((r = lt.cublasLtMatmulDescCreate(&p->op, lt_compute_32f, lt_type_32f))) return r;
    if ((r = lt.cublasLtMatmulDescSetAttribute(p->op, lt_desc_transa, &transposed, sizeof transposed))) goto fail;
    if (bias && (r = lt.cublasLtMatmulDescSetAttribute(p->op, lt_desc_epilogue, &epilogue, sizeof epilogue))) goto fail;
    if ((r = lt.cublasLtMatrixLayoutCreate(&p->a, lt_type_bf16, k, n, k))) goto fail;
    if ((r = lt.cublasLtMatrixLayoutCreate(&p->b, lt_type_bf16, k, m, k))) goto fail;
    if ((r = lt.cublasLtMatrixLayoutCreate(&p->c, out_type, n, m, n))) goto fail;
    if ((r = lt.cublasLtMatmulPreferenceCreate(&pref))) goto fail;
    r = lt.cublasLtMatmulPreferenceSetAttribute(pref, lt_pref_max_workspace, &max_workspace, sizeof max_workspace);
    if (!r)
        r = lt.cublasLtMatmulAlgoGetHeuristic(handle, p->op, p->a, p->b, p->c, p->c, pref, 1, &best, &found);
    lt.cublasLtMatmulPreferenceDestroy(pref);
    if (!r && !found) r = 15;  // CUBLAS_STATUS_NOT_SUPPORTED
    if (r) goto fail;
    p->algo = best.algo;
    p->workspace = best.workspace;
    return 0;
fail:
    lt_plan_free(p);
    return r;
}

int lt_run(void *handle, const lt_plan *p, uint64_t m, uint64_t x, uint64_t w, uint64_t bias, uint64_t y, int add,
           uint64_t workspace, void *stream) {
    const float one = 1, beta = add;
    int r;
    if ((r = lt.cublasLtMatrixLayoutSetAttribute(p->b, lt_layout_cols, &m, sizeof m))) return r;
    if ((r = lt.cublasLtMatrixLayoutSetAttribute(p->c, lt_layout_cols, &m, sizeof m))) return r;
    if (bias && (r = lt.cublasLtMatmulDescSetAttribute(p->op, lt_desc_bias_pointer, &bias, sizeof bias))) return r;
    return lt.cublasLtMatmul(handle, p->op, &one, (void *)w, p->a, (void *)x, p->b, &beta, (void *)y, p->c, (void *)y,
                             p->c, &p->algo, (void *)workspace, p->workspace, stream);
}

void lt_plan_free(lt_plan *p) {
    if (p->c) lt.cublasLtMatrixLayoutDestroy(p->c);
    if (p->b) lt.cublasLtMatrixLayoutDestroy(p->b);
    if (p->a) lt.cublasLtMatrixLayoutDestroy(p->a);
    if (p->op) lt.cublasLtMatmulDescDestroy(p->op);
    memset(p, 0, sizeof *p);
}
