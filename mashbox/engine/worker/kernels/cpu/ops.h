// What the kernels of one instruction set offer.
#pragma once

#include <cstdint>

#include "layout.h"
#include "rows.h"

namespace mashbox {

constexpr int64_t kSpan = 128;  // positions whose attention is computed as one part
constexpr int64_t kTile = 8;    // positions whose keys lie together: [dim, 8]
constexpr int64_t kNear = 4096;  // numbers of keys or values that are worked on at a time, unless a tile is more
constexpr int64_t kPart = 8;    // numbers of a part before its `dim` values: the largest score, and the sum

// A query [dim] over the positions first..end - 1, and where its part of a span goes: [kPart + dim].
struct Query {
    const float* q;
    int64_t first, end;
    float* part;
};

// Where the keys of a position begin in a head's tiles; its numbers are kTile apart.
inline int64_t tile_at(int64_t position, int64_t dim) {
    return position / kTile * kTile * dim + position % kTile;
}

// Queries of one slot over the positions begin..end - 1; keys (in tiles, a whole one at least) and values
// [end - begin, dim] are of one head.
// Queries of one row follow each other.
struct Span {
    const Query* query;
    int64_t queries;
    int64_t begin, end;
    const uint16_t *keys, *values;
    int64_t dim;
    float scale;
    float cap;  // scores are cap * tanh(score / cap); 0: as they are
};

// How a token is drawn: the likeliest where it is greedy, else after temperature, top_k (0: none), top_p and
// min_p by a number from 0 to below 1.
struct Drawing {
    bool greedy;
    float temperature;
    int64_t top_k;
    double top_p, min_p, draw;
};

struct Ops {
    // `groups` * 32 numbers, into the groups from `first` on. One that is not finite makes its group's scale
    // NaN.
    void (*quantise)(const float* x, int64_t first, int64_t groups, const Rows& to);
    // out = x / sqrt(mean(x^2) + eps) * weight, n a multiple of 8.
    void (*norm)(const float* x, const float* weight, int64_t n, float eps, float* out);
    // out[r * stride + row] (+)= the product, for the panels first..last - 1 and each of `count` rows.
    void (*product)(const Matrix& m, int64_t first, int64_t last, const Rows& a, int64_t count, float* out,
                    int64_t stride, bool add);
    // Turns the pairs (i, i + half) of one head.
    void (*rotate)(float* head, const float* cosine, const float* sine, int64_t half);
    // Half precision, the numbers `apart` from each other; n a multiple of 8.
    void (*to_half)(const float* x, uint16_t* out, int64_t n, int64_t apart);
    // The parts of a span for its queries; `scratch` has room for queries * kSpan + the larger of kNear and kTile * dim.
    void (*attend)(const Span& span, float* scratch);
    // Joins the part of a later span to that of all before it.
    void (*join)(float* whole, const float* part, int64_t dim);
    // What all parts joined come to: out [dim].
    void (*finish)(const float* whole, int64_t dim, float* out);
    // gate = silu(gate) * up
    void (*gate)(float* gate, const float* up, int64_t n);
    // gate = gelu(gate) * up, by the tangent; n a multiple of 8
    void (*gate_gelu)(float* gate, const float* up, int64_t n);
    // x += y * factor, n a multiple of 8
    void (*add)(float* x, const float* y, float factor, int64_t n);
    // A token of a row of n logits; -1: one of them is NaN, or the largest is infinite.
    int64_t (*draw)(const float* row, int64_t n, const Drawing& how);
};

extern const Ops kPlain;
extern const Ops* const kAvxVnni;  // null where the compiler did not know it
#if defined(__x86_64__)
extern const Ops kAvx2;
extern const Ops kAvx512;
#endif

// The kernels for an instruction set by its number in mashbox_cpu.h; null where this processor lacks it.
const Ops* ops_for(int instructions);

// Where member `part` of `parts` begins among `count` pieces of work.
inline int64_t begin_of(int64_t count, int part, int parts) { return count * part / parts; }

inline int64_t panels_of(const Matrix& m) { return (m.rows + kLanes - 1) / kLanes; }

}  // namespace mashbox
