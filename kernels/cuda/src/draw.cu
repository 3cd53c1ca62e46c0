// draw chooses tokens as model/sampling does on the host: edits of single logits, then
// the largest logit, or a draw among what top_k, min_p and top_p leave; and reports
// log-probabilities under the logits as they were. A block takes a row.
//
// What is sure to be left out is left out first. The rest, some dozens of tokens as a
// rule, goes to a list, which is sorted if it is short. Of a long one, and of a row of
// which no list holds enough, the k-th largest value and the value at which the
// likeliest tokens reach a share are found some bits at a time, by counts and by sums.
// A warp owns a piece of the vocabulary, so sums are added in one order every time
// and equal values are told apart by id.
//
// Exponentials are the host's to the bit, sums are doubles: the token is the host's
// unless the draw falls within some 1e-13 of a border.
#include "common.cuh"

constexpr int kThreads = 1024, kWarps = 32;
constexpr int kSegment = 512;  // of the list, for a warp
constexpr int kMaxTop = 1024;  // alternatives that are reported, entries that are sorted
constexpr int kDigits = 8;     // of the search for a share

struct Kept {
    float x;
    int id;
};

// Row is one row's parameters, see draw.go.
struct Row {
    int row;      // of the logits, from 1; 0: nothing to do
    float scale;  // 1 / temperature; 0: the largest
    int top_k;    // 0: all
    float min_p;
    double top_p, u;
    float repetition, frequency, presence;
    int bans, biases, seen;  // edits of each kind, in this order
    int edit_at;             // word of the tables
    int logprobs;            // alternatives to report; -1: no report
};

struct Edit {
    int id;
    int value;    // a bias's bits, or how often a token was seen
    float saved;  // the logit before
};

struct Drawn {
    int token;   // -1: none is allowed
    int finite;  // 0: a logit is not finite
    float logprob;
    int rank;
};

struct Draw {
    float *logits;
    int vocab;
    int *tables;
    const Row *rows;
    Kept *lists;  // [rows][kWarps][kSegment]
    volatile Drawn *drawn;
    volatile Kept *top;  // [rows][kMaxTop]
};

// exponential is expSum's of model/sampling, rounding by rounding.
static __device__ inline float exponential(float x, float best, float scale) {
    x = __fmul_rn(__fsub_rn(x, best), scale);
    if (!(x >= -87.3f)) return 0.f;
    const float shift = 12582912.f;
    const float t = __fadd_rn(__fmul_rn(x, 1.4426950408889634f), shift), n = __fsub_rn(t, shift);
    const float r = __fsub_rn(__fsub_rn(x, __fmul_rn(n, 0.693359375f)), __fmul_rn(n, -2.12194440e-4f));
    float p = (float)(1.0 / 720);
    p = __fadd_rn(__fmul_rn(p, r), (float)(1.0 / 120));
    p = __fadd_rn(__fmul_rn(p, r), (float)(1.0 / 24));
    p = __fadd_rn(__fmul_rn(p, r), (float)(1.0 / 6));
    p = __fadd_rn(__fmul_rn(p, r), 0.5f);
    p = __fadd_rn(__fmul_rn(p, r), 1.f);
    p = __fadd_rn(__fmul_rn(p, r), 1.f);
    return __uint_as_float(__float_as_uint(p) + (__float_as_uint(t) << 23));
}

// Shared is a block's memory. Each use ends with a barrier behind the last read.
struct Shared {
    union {
        double sums[8][kWarps];
        int counts[8][kWarps];
        unsigned long long best[kWarps];
    };
    int listed[kWarps];  // entries of each warp's segment
    int found, last;
    Kept top[kMaxTop], sorted[kMaxTop];
};

// Source is what a block looks at: the row, each warp its piece of the vocabulary, or
// the list, each warp its segment. Both are in the order of ids.
struct Source {
    const float *row;
    const Kept *list;  // null: the row
    int vocab, piece;
    const int *listed;

    __device__ int count(int warp) const {
        return list ? listed[warp] : max(0, min(piece, vocab - warp * piece));
    }
    __device__ Kept at(int warp, int i) const {
        if (list) return list[warp * kSegment + i];
        return Kept{row[warp * piece + i], warp * piece + i};
    }
    // each calls f with every element of this thread's warp.
    template <typename F>
    __device__ void each(F f) const {
        const int warp = threadIdx.x / 32, n = count(warp);
#pragma unroll 4
        for (int i = threadIdx.x % 32; i < n; i += 32) f(at(warp, i));
    }
};

template <typename T>
static __device__ inline T warp_add(T v) {
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
    return v;
}

// block_add adds N numbers of each thread; every thread gets the sums.
template <int N, typename T>
static __device__ void block_add(T (&v)[N], T (*part)[kWarps]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < N; j++) {
        v[j] = warp_add(v[j]);
        if (lane == 0) part[j][warp] = v[j];
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < N; j++) v[j] = warp_add(part[j][lane]);
    __syncthreads();
}

// collect puts what is worth keeping on the list and returns the list, or the source
// itself if a segment does not hold it.
template <typename F>
static __device__ Source collect(Shared &s, const Source &src, Kept *list, F worth) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n = src.count(warp);
    int kept = 0;
    Kept next = lane < n ? src.at(warp, lane) : Kept{0.f, 0};
    for (int from = 0; from < n; from += 32) {
        const Kept c = next;
        if (from + 32 + lane < n) next = src.at(warp, from + 32 + lane);
        const bool keep = from + lane < n && worth(c.x);
        const unsigned keeps = __ballot_sync(0xffffffffu, keep);
        const int to = kept + __popc(keeps & ((1u << lane) - 1));
        if (keep && to < kSegment) list[warp * kSegment + to] = c;
        kept += __popc(keeps);
    }
    if (lane == 0) s.listed[warp] = kept;
    if (__syncthreads_or(kept > kSegment)) return src;
    Source out = src;
    out.list = list, out.listed = s.listed;
    return out;
}

// kth returns the k-th largest key of the source. list is free if the source is a row.
static __device__ unsigned kth(Shared &s, Source src, Kept *list, int k) {
    unsigned prefix = 0, mask = 0;
    for (int shift = 30; shift >= 0; shift -= 3) {  // 2 bits, then 3 at a time
        if (!src.list && shift == 18) src = collect(s, src, list, [&](float x) { return (order(x) & mask) == prefix; });
        int n[8] = {};
        src.each([&](Kept c) {
            const unsigned key = order(c.x);
            if ((key & mask) != prefix) return;
            const unsigned digit = key >> shift & 7;
#pragma unroll
            for (int j = 0; j < 8; j++) n[j] += digit == j;
        });
        block_add(n, s.counts);
        int digit = 7;
#pragma unroll
        for (int j = 7; j > 0; j--)
            if (digit == j && k > n[j]) k -= n[j], digit = j - 1;
        prefix |= (unsigned)digit << shift, mask |= 7u << shift;
    }
    return prefix;
}

// share returns the largest key (bits of a value) such that the values from it on
// add up to target, or to more than it; above is the sum of the larger ones. list is
// free if the source is a row, bins has room for kDigits sums of each thread.
template <typename F>
static __device__ unsigned share(Shared &s, Source src, Kept *list, double *bins, F value, double target, bool more,
                                 double &above) {
    unsigned prefix = 0, mask = 0;
    above = 0;
    for (int shift = 27; shift >= 0; shift -= 3) {  // values are at most 1: 30 bits
        if (!src.list && shift == 18)
            src = collect(s, src, list, [&](float x) { return (__float_as_uint(value(x)) & mask) == prefix; });
        for (int j = 0; j < kDigits; j++) bins[j * kThreads + threadIdx.x] = 0;
        src.each([&](Kept c) {
            const float e = value(c.x);
            const unsigned key = __float_as_uint(e);
            if ((key & mask) == prefix) bins[(key >> shift & (kDigits - 1)) * kThreads + threadIdx.x] += e;
        });
        // A warp adds up the bins of a digit.
        __syncthreads();
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        if (warp < kDigits) {
            double sum = 0;
            for (int i = lane; i < kThreads; i += 32) sum += bins[warp * kThreads + i];
            sum = warp_add(sum);
            if (lane == 0) s.sums[0][warp] = sum;
        }
        __syncthreads();
        int digit = -1, least = 0;
        double high = above, rest = above;
        for (int j = kDigits - 1; j >= 0 && digit < 0; j--) {
            const double sum = s.sums[0][j];
            if (sum == 0) continue;
            least = j, rest = high;
            if (more ? high + sum > target : high + sum >= target) digit = j;
            else high += sum;
        }
        if (digit < 0) digit = least, high = rest;  // rounding: the last one there is
        above = high;
        prefix |= (unsigned)digit << shift, mask |= (unsigned)(kDigits - 1) << shift;
        __syncthreads();
    }
    return prefix;
}

// number returns how many elements are like that.
template <typename F>
static __device__ int number(Shared &s, const Source &src, F is) {
    int n[1] = {};
    src.each([&](Kept c) { n[0] += is(c); });
    block_add(n, s.counts);
    return n[0];
}

// nth returns the id of the k-th element that is like that, from 1.
template <typename F>
static __device__ int nth(Shared &s, const Source &src, F is, int k) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int mine = 0;
    src.each([&](Kept c) { mine += is(c); });
    mine = warp_add(mine);
    if (lane == 0) s.counts[0][warp] = mine;
    __syncthreads();
    int before = 0;
    for (int w = 0; w < warp; w++) before += s.counts[0][w];
    if (before < k && before + mine >= k) {
        const int n = src.count(warp);
        for (int from = 0; from < n && before < k; from += 32) {
            const bool in = from + lane < n;
            const Kept c = in ? src.at(warp, from + lane) : Kept{0.f, 0};
            const unsigned hits = __ballot_sync(0xffffffffu, in && is(c));
            if (in && is(c) && before + __popc(hits & ((1u << lane) - 1)) == k - 1) s.found = c.id;
            before += __popc(hits);
        }
    }
    __syncthreads();
    const int id = s.found;
    __syncthreads();
    return id;
}

// locate draws in the order of ids: the first element at which the sum of values
// exceeds u of the total.
template <typename F>
static __device__ int locate(Shared &s, const Source &src, F value, double u) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    double sum = 0;
    src.each([&](Kept c) { sum += value(c.x); });
    sum = warp_add(sum);
    if (lane == 0) s.sums[0][warp] = sum;
    if (threadIdx.x == 0) s.found = kThreads, s.last = -1;
    __syncthreads();
    double left = 0;
    for (int w = 0; w < kWarps; w++) left += s.sums[0][w];
    left *= u;
    int w = 0, at = 0;  // at: the last piece with anything in it
    for (; w < kWarps; w++) {
        if (s.sums[0][w] == 0) continue;
        at = w;
        if (left < s.sums[0][w]) break;
        left -= s.sums[0][w];
    }
    if (w == kWarps) left = s.sums[0][at];  // the crumb that rounding left
    // All threads share that piece out.
    const int n = src.count(at), per = (n + kThreads - 1) / kThreads, from = threadIdx.x * per, to = min(n, from + per);
    double mine = 0;
    for (int i = from; i < to; i++) {
        const float e = value(src.at(at, i).x);
        mine += e;
        if (e > 0) atomicMax(&s.last, i);
    }
    double upto = mine;
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
        const double other = __shfl_up_sync(0xffffffffu, upto, d);
        if (lane >= d) upto += other;
    }
    if (lane == 31) s.sums[1][warp] = upto;
    __syncthreads();
    for (int v = 0; v < warp; v++) upto += s.sums[1][v];
    if (mine > 0 && upto > left) atomicMin(&s.found, threadIdx.x);
    __syncthreads();
    if (s.found == threadIdx.x) {
        double acc = upto - mine;
        for (int i = from; i < to; i++) {
            const float e = value(src.at(at, i).x);
            if (e == 0) continue;
            s.last = i;
            if ((acc += e) > left) break;
        }
    }
    __syncthreads();
    const int id = src.at(at, max(0, s.last)).id;
    __syncthreads();
    return id;
}

// floor_of returns a key that at least k (at most kThreads) of the threads' largest
// keys reach: no smaller one is among the k largest.
static __device__ unsigned floor_of(unsigned mine, int k) {
    unsigned key = 0;
    for (int bit = 31; bit >= 0; bit--)
        if (__syncthreads_count(mine >= (key | 1u << bit)) >= k) key |= 1u << bit;
    return key;
}

// largest finds the best logit, the lowest id among equals, and the largest key of
// each thread. It tells whether all are finite.
static __device__ bool largest(Shared &s, const Source &src, float &best, int &id, unsigned &mine) {
    unsigned long long top = 0;
    bool wrong = false;
    mine = 0;
    src.each([&](Kept c) {
        wrong |= !isfinite(c.x);
        mine = max(mine, order(c.x));
        const unsigned long long key = (unsigned long long)order(c.x) << 32 | (0xffffffffu - c.id);
        top = key > top ? key : top;
    });
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) {
        const unsigned long long other = __shfl_xor_sync(0xffffffffu, top, d);
        top = other > top ? other : top;
    }
    if (threadIdx.x % 32 == 0) s.best[threadIdx.x / 32] = top;
    wrong = __syncthreads_or(wrong);
    top = s.best[threadIdx.x % 32];
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) {
        const unsigned long long other = __shfl_xor_sync(0xffffffffu, top, d);
        top = other > top ? other : top;
    }
    __syncthreads();
    id = 0xffffffffu - (unsigned)top;
    best = src.row[id];
    __syncthreads();  // before anybody edits the row
    return !wrong;
}

// edit applies a row's edits and keeps what was there; undo puts it back.
static __device__ void edit(float *row, int vocab, Edit *e, const Row &r) {
    for (int i = threadIdx.x; i < r.bans; i += kThreads) {
        e[i].saved = row[e[i].id];
        row[e[i].id] = -INFINITY;
    }
    e += r.bans;
    __syncthreads();
    for (int i = threadIdx.x; i < r.biases; i += kThreads) {
        e[i].saved = row[e[i].id];
        row[e[i].id] = __fadd_rn(e[i].saved, __int_as_float(e[i].value));
    }
    e += r.biases;
    __syncthreads();
    for (int i = threadIdx.x; i < r.seen; i += kThreads) {
        if (e[i].id >= vocab) continue;
        float x = e[i].saved = row[e[i].id];
        x = x > 0 ? __fdiv_rn(x, r.repetition) : __fmul_rn(x, r.repetition);
        if (e[i].value > 0) x = __fsub_rn(x, __fadd_rn(__fmul_rn(r.frequency, (float)e[i].value), r.presence));
        row[e[i].id] = x;
    }
    __syncthreads();
}

static __device__ void undo(float *row, int vocab, const Edit *e, const Row &r) {
    const Edit *seen = e + r.bans + r.biases, *biases = e + r.bans;
    __syncthreads();
    for (int i = threadIdx.x; i < r.seen; i += kThreads)
        if (seen[i].id < vocab) row[seen[i].id] = seen[i].saved;
    __syncthreads();
    for (int i = threadIdx.x; i < r.biases; i += kThreads) row[biases[i].id] = biases[i].saved;
    __syncthreads();
    for (int i = threadIdx.x; i < r.bans; i += kThreads) row[e[i].id] = e[i].saved;
    __syncthreads();
}

// best_of puts the n best to s.top: those above cut in any order, then of the ones that
// equal it the first.
static __device__ void best_of(Shared &s, const Source &src, unsigned cut, int n) {
    const int larger = number(s, src, [&](Kept c) { return order(c.x) > cut; });
    if (threadIdx.x == 0) s.found = 0;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int equals = 0;
    src.each([&](Kept c) { equals += order(c.x) == cut; });
    equals = warp_add(equals);
    if (lane == 0) s.counts[0][warp] = equals;
    __syncthreads();
    int at = larger;
    for (int w = 0; w < warp; w++) at += s.counts[0][w];
    const int mine = src.count(warp);
    for (int from = 0; from < mine; from += 32) {
        const bool in = from + lane < mine;
        const Kept c = in ? src.at(warp, from + lane) : Kept{0.f, 0};
        if (in && order(c.x) > cut) s.top[atomicAdd(&s.found, 1)] = c;
        const bool same = in && order(c.x) == cut;
        const unsigned sames = __ballot_sync(0xffffffffu, same);
        const int to = at + __popc(sames & ((1u << lane) - 1));
        if (same && to < n) s.top[to] = c;
        at += __popc(sames);
    }
    __syncthreads();
}

// gather copies a short list to s.top, in the order of ids, and returns its length, or
// -1 if it is long.
static __device__ int gather(Shared &s, const Source &src) {
    if (!src.list) return -1;
    int total = 0, before = 0;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int w = 0; w < kWarps; w++) before += w < warp ? s.listed[w] : 0, total += s.listed[w];
    if (total > kMaxTop) return -1;
    for (int i = lane; i < s.listed[warp]; i += 32) s.top[before + i] = src.at(warp, i);
    __syncthreads();
    return total;
}

// sort writes n elements of s.top to s.sorted: the largest first, of equals the lowest
// id.
static __device__ void sort(Shared &s, int n) {
    if (threadIdx.x < n) {
        const Kept c = s.top[threadIdx.x];
        int ahead = 0;
        for (int i = 0; i < n; i++) ahead += s.top[i].x > c.x || (s.top[i].x == c.x && s.top[i].id < c.id);
        s.sorted[ahead] = c;
    }
    __syncthreads();
}

// walk returns the id of the first of n elements at which the sum of values exceeds
// left, the last that can be if rounding leaves a crumb. One thread's work.
static __device__ int walk(const Kept *of, int n, double left) {
    int id = of[0].id;
    for (int i = 0; i < n; i++) {
        if (of[i].x == 0) continue;
        id = of[i].id;
        if ((left -= of[i].x) < 0) break;
    }
    return id;
}

// choose_short draws among n elements of s.top.
static __device__ int choose_short(Shared &s, int n, const Row &r, float best) {
    float cut = -INFINITY;
    if (r.top_k > 0) {
        sort(s, n);
        cut = s.sorted[min(r.top_k, n) - 1].x;
    }
    __syncthreads();
    if (threadIdx.x < n) {
        const float x = s.top[threadIdx.x].x, e = x >= cut ? exponential(x, best, r.scale) : 0.f;
        s.top[threadIdx.x].x = e >= r.min_p ? e : 0.f;
    }
    __syncthreads();
    if (r.top_p < 1) sort(s, n);
    if (threadIdx.x == 0) {
        double total = 0, sum = 0;
        for (int i = 0; i < n; i++) total += s.top[i].x;
        if (r.top_p < 1) {
            int kept = 0;
            while (kept < n && s.sorted[kept].x > 0 && (kept == 0 || sum < r.top_p * total)) sum += s.sorted[kept++].x;
            s.found = walk(s.sorted, kept, r.u * sum);
        } else {
            s.found = walk(s.top, n, r.u * total);
        }
    }
    __syncthreads();
    const int id = s.found;
    __syncthreads();
    return id;
}

// choose draws a token from the edited row.
static __device__ int choose(Shared &s, Source src, Kept *list, double *bins, const Row &r, float best, unsigned mine) {
    const float scale = r.scale;
    unsigned cut = 0;
    if (r.top_k > 0) {
        if (r.top_k <= kThreads) {
            const unsigned bound = floor_of(mine, r.top_k);
            src = collect(s, src, list, [&](float x) { return order(x) >= bound; });
            const int n = gather(s, src);
            if (n > 0) return choose_short(s, n, r, best);
        }
        cut = kth(s, src, list, r.top_k);
    }
    float least = r.min_p;
    auto value = [&](float x) {
        const float e = order(x) >= cut ? exponential(x, best, scale) : 0.f;
        return e >= least ? e : 0.f;
    };
    if (!(r.top_p < 1)) return locate(s, src, value, r.u);
    double total[2] = {};  // and how many
    src.each([&](Kept c) {
        const float e = value(c.x);
        total[0] += e, total[1] += e > 0;
    });
    block_add(total, s.sums);
    if (!src.list) {
        // What is below this adds up to less than the share that is left out.
        const float floor = fmaxf(r.min_p, (float)((1 - r.top_p) * total[0] / total[1] * (1 - 1e-6)));
        src = collect(s, src, list, [&](float x) { return value(x) >= floor && value(x) > 0; });
        least = floor;
    }
    double above;
    const double wanted = r.top_p * total[0];
    const unsigned border = share(s, src, list, bins, value, wanted, false, above);
    const float eb = __uint_as_float(border);
    const int equals = number(s, src, [&](Kept c) { return __float_as_uint(value(c.x)) == border; });
    const int kept = min(equals, max(1, (int)ceil((wanted - above) / eb)));
    const double left = r.u * (above + kept * (double)eb);
    unsigned key = share(s, src, list, bins, value, left, true, above);
    if (key < border) return nth(s, src, [&](Kept c) { return __float_as_uint(value(c.x)) == border; }, kept);
    auto is = [&](Kept c) { return __float_as_uint(value(c.x)) == key; };
    const int most = key == border ? kept : number(s, src, is);
    return nth(s, src, is, min(most, max(1, (int)((left - above) / __uint_as_float(key)) + 1)));
}

// report writes log-probabilities under the raw row.
static __device__ void report(Shared &s, Source src, Kept *list, const Row &r, volatile Drawn *out, volatile Kept *top,
                              float best, unsigned mine, int token) {
    const float chosen = src.row[token];
    double sum[2] = {};
    src.each([&](Kept c) { sum[0] += exponential(c.x, best, 1.f), sum[1] += c.x >= chosen; });
    block_add(sum, s.sums);
    const float norm = __fadd_rn(best, (float)log(sum[0]));
    if (threadIdx.x == 0) out->logprob = __fsub_rn(chosen, norm), out->rank = (int)sum[1];
    const int n = min(r.logprobs, src.vocab);
    if (n <= 0) return;
    const unsigned bound = floor_of(mine, n);
    src = collect(s, src, list, [&](float x) { return order(x) >= bound; });
    int listed = gather(s, src);
    if (listed < 0) {  // many equals
        const unsigned cut = kth(s, src, list, n);
        best_of(s, src, cut, n);
        listed = n;
    }
    sort(s, listed);
    if (threadIdx.x < n) {
        const Kept c = s.sorted[threadIdx.x];
        top[threadIdx.x].x = __fsub_rn(c.x, norm), top[threadIdx.x].id = c.id;
    }
}

extern "C" __global__ void __launch_bounds__(kThreads) draw(const Draw p) {
    __shared__ Shared s;
    extern __shared__ double bins[];  // [kDigits][kThreads]
    ahead_done();
    let_next_start();
    const Row r = p.rows[blockIdx.x];
    if (r.row == 0) return;
    float *row = p.logits + (size_t)(r.row - 1) * p.vocab;
    Edit *edits = reinterpret_cast<Edit *>(p.tables + r.edit_at);
    Kept *list = p.lists + (size_t)blockIdx.x * kWarps * kSegment;
    volatile Drawn *out = p.drawn + blockIdx.x;
    Source src = {row, nullptr, p.vocab, (p.vocab + kWarps - 1) / kWarps, nullptr};
    float rawBest, best;
    int token;
    unsigned rawMine, mine;
    const bool finite = largest(s, src, rawBest, token, rawMine);
    best = rawBest, mine = rawMine;
    if (finite) {
        const bool edited = r.bans + r.biases + r.seen > 0;
        if (edited) {
            edit(row, p.vocab, edits, r);
            largest(s, src, best, token, mine);
        }
        if (best == -INFINITY) token = -1;
        else if (r.scale > 0) token = choose(s, src, list, bins, r, best, mine);
        if (edited) undo(row, p.vocab, edits, r);
        if (token >= 0 && r.logprobs >= 0)
            report(s, src, list, r, out, p.top + (size_t)blockIdx.x * kMaxTop, rawBest, rawMine, token);
    }
    if (threadIdx.x == 0) out->token = token, out->finite = finite;
    __threadfence_system();  // before the flag of the kernel behind this one
}
