// fill makes up weights: element i is center + spread * u, u uniform in [-1, 1) from
// the i-th value of splitmix64 from state on. The loader's own generator gives the
// same bits on the host.
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256)
    fill(bf16 *dst, unsigned long long n, unsigned long long state, double center, double spread) {
    ahead_done();
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (unsigned long long)gridDim.x * blockDim.x) {
        unsigned long long z = state + (i + 1) * 0x9e3779b97f4a7c15ull;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ z >> 27) * 0x94d049bb133111ebull;
        z ^= z >> 31;
        const double unit = __dadd_rn((double)(z >> 11) / 4503599627370496.0, -1.0);
        dst[i] = __float2bfloat16((float)__dadd_rn(center, __dmul_rn(spread, unit)));
    }
}
