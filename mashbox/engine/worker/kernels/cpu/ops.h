// What the kernels of one instruction set offer.
#pragma once

#include <cstdint>

#include "layout.h"
#include "rows.h"

namespace mashbox {

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
    void (*to_half)(const float* x, uint16_t* out, int64_t n);
    // Attention of one head over `length` keys and values [length, dim]; `scores` has room for length + 8.
    void (*attend)(const float* q, const uint16_t* keys, const uint16_t* values, int64_t length, int64_t dim,
                   float scale, float* scores, float* out);
    // gate = silu(gate) * up
    void (*gate)(float* gate, const float* up, int64_t n);
    // gate = gelu(gate) * up, by the tangent; n a multiple of 8
    void (*gate_gelu)(float* gate, const float* up, int64_t n);
    // x += y * factor, n a multiple of 8
    void (*add)(float* x, const float* y, float factor, int64_t n);
};

extern const Ops kPlain;
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
