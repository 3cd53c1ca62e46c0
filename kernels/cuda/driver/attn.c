//go:build cuda

// The attention library, opened from the bytes that the executable carries.

#define _GNU_SOURCE
#include "attn_load.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct {
    int (*attn_fa2_plan)(const attn_shape *, const int32_t *, const int32_t *, attn_plan *);
    int (*attn_fa2_run)(const attn_shape *, const attn_plan *, const attn_io *);
    int (*attn_sm90_plan)(const attn_shape *, const int32_t *, const int32_t *, const int32_t *, attn_plan *);
    int (*attn_sm90_run)(const attn_shape *, const attn_plan *, const attn_io *);
    const char *(*attn_error)(void);
} lib;

int attn_load(const void *image, size_t size, char *err, size_t n) {
    int fd = memfd_create("libattn.so", MFD_CLOEXEC);
    if (fd < 0) {
        snprintf(err, n, "memfd_create failed");
        return -1;
    }
    for (size_t at = 0; at < size;) {
        ssize_t w = write(fd, (const char *)image + at, size - at);
        if (w <= 0) {
            snprintf(err, n, "memfd write failed");
            close(fd);
            return -1;
        }
        at += w;
    }
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    close(fd);
    if (!h) {
        snprintf(err, n, "%s", dlerror());
        return -1;
    }
#define FIND(f)                                       \
    if (!(*(void **)&lib.f = dlsym(h, #f))) {         \
        snprintf(err, n, "no %s in the library", #f); \
        return -1;                                    \
    }
    FIND(attn_fa2_plan)
    FIND(attn_fa2_run)
    FIND(attn_sm90_plan)
    FIND(attn_sm90_run)
    FIND(attn_error)
#undef FIND
    return 0;
}

int attn_make_plan(int hopper, const attn_shape *s, const int32_t *qo, const int32_t *kv, const int32_t *len,
                   attn_plan *p) {
    return hopper ? lib.attn_sm90_plan(s, qo, kv, len, p) : lib.attn_fa2_plan(s, qo, kv, p);
}

int attn_run_plan(int hopper, const attn_shape *s, const attn_plan *p, const attn_io *io) {
    return hopper ? lib.attn_sm90_run(s, p, io) : lib.attn_fa2_run(s, p, io);
}

const char *attn_last(void) { return lib.attn_error(); }
