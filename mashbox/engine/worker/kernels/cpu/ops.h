// What the kernels of one instruction set offer, and the layouts that all of them share.
#pragma once

#include <cstdint>

namespace mashbox {

constexpr int64_t kGroup = 32;  // inputs that share a scale, in weights and in activations
constexpr int64_t kLanes = 8;   // output rows of a panel
constexpr int64_t kBytes4 = 160;
constexpr int64_t kBytes8 = 272;

// A packed matrix of `rows` outputs and `cols` inputs (a multiple of 32), in panels of 8 rows; the last
// panel is filled up with zeros. A panel is a run of blocks, one for each group of 32 inputs.
//
// A block's 16 pairs of inputs, p = 0..15, are (8 * (p / 4) + p % 4, 4 further): what a shift by 4 * (p % 4)
// bits and a mask leave of a 32-bit word of eight consecutive 4-bit inputs.
//   4 bits: four words of 8 x 32 bits, lane = row (128 bytes), 8 scales and 8 minima in half precision;
//           weight = scale * q + minimum.
//   8 bits: eight words of 8 x 32 bits, lane = row, the bytes 0 and 2 of word w are pair 2 w, the bytes 1
//           and 3 are pair 2 w + 1 (256 bytes), 8 scales in half precision; weight = scale * q.
struct Matrix {
    int64_t bits;
    int64_t rows;
    int64_t cols;
    const uint8_t* data;
};

// Rows of activations in 16 bits, a scale for each group: x = scale * q. `sum` is scale times the group's
// sum of q. The numbers of a group lie in the order of a block's pairs.
struct Rows {
    int16_t* q;
    float* scale;
    float* sum;
    int64_t cols;
};

struct Ops {
    // One row of `groups` * 32 numbers. A number that is not finite makes its group's scale NaN.
    void (*quantise)(const float* x, int64_t groups, int16_t* q, float* scale, float* sum);
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
};

extern const Ops kPlain;
#if defined(__x86_64__)
extern const Ops kAvx2;
extern const Ops kAvx512;
#endif

inline int64_t block_bytes(int64_t bits) { return bits == 4 ? kBytes4 : kBytes8; }

// Where the pair p of a block finds its first input; the second is 4 further.
inline int64_t pair_input(int64_t p) { return 8 * (p / 4) + p % 4; }

}  // namespace mashbox
