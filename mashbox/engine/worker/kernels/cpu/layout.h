// How packed matrices lie in memory. What reads and writes them is pack.cpp and product.inc.
#pragma once

#include <cstdint>

namespace mashbox {

constexpr int64_t kGroup = 32;  // inputs of a block, which share a scale in activations
constexpr int64_t kLanes = 8;   // output rows of a panel

// ggml's numbers of its types.
enum Kind : int {
    kF32 = 0,
    kF16 = 1,
    kQ4_0 = 2,
    kQ4_1 = 3,
    kQ5_0 = 6,
    kQ5_1 = 7,
    kQ8_0 = 8,
    kQ4_K = 12,
    kQ5_K = 13,
    kQ6_K = 14,
    kBF16 = 30,
};

// A packed matrix of `rows` outputs and `cols` inputs, in panels of 8 rows; the last panel is filled up
// with zeros. A panel is a run of units of `blocks` blocks, one for each group of 32 inputs. A unit holds
//   the weights of its blocks, one block after the other, 32 * bits bytes each;
//   fine kinds: a byte for each row of each block's parts (its scale), then for each row of each block (its
//   minimum);
//   8 scales in half precision, then 8 minima in half precision (not so for floating weights).
// A whole weight q stands for scale * (q - 2^(offset)) (offset 0: for scale * q) or, with minima, for
// scale * q + minimum; in fine kinds the scale is the unit's scale times the part's byte, and the minimum the
// unit's times the block's.
struct Layout {
    int bits;          // of a weight: 4, 5, 6 or 8 for whole numbers, 16 or 32 for floating ones
    int blocks;        // of a unit: 1 or 8; 8 is what is called fine above
    int parts;         // of a block that have a scale of their own: 1 or 2
    bool minimum;      // whether blocks have one
    int offset;        // see above
    int source_bytes;  // of one row's unit in a GGUF file

    constexpr bool known() const { return bits != 0; }
    constexpr bool floating() const { return bits >= 16; }
    constexpr bool fine() const { return blocks > 1; }
    constexpr int64_t inputs() const { return blocks * kGroup; }
    constexpr int64_t weight_bytes() const { return 32 * bits; }
    constexpr int64_t steps() const { return blocks * weight_bytes(); }
    constexpr int64_t minima() const { return steps() + (fine() ? kLanes * blocks * parts : 0); }
    constexpr int64_t halves() const { return minima() + (fine() && minimum ? kLanes * blocks : 0); }
    constexpr int64_t bytes() const { return halves() + (floating() ? 0 : 16 * (1 + minimum)); }
};

constexpr Layout layout(int64_t kind) {
    switch (kind) {
        case kF32: return {32, 1, 1, false, 0, 128};
        case kF16: return {16, 1, 1, false, 0, 64};
        case kBF16: return {16, 1, 1, false, 0, 64};
        case kQ4_0: return {4, 1, 1, false, 3, 18};
        case kQ4_1: return {4, 1, 1, true, 0, 20};
        case kQ5_0: return {5, 1, 1, false, 4, 22};
        case kQ5_1: return {5, 1, 1, true, 0, 24};
        case kQ8_0: return {8, 1, 1, false, 0, 34};
        case kQ4_K: return {4, 8, 1, true, 0, 144};
        case kQ5_K: return {5, 8, 1, true, 0, 176};
        case kQ6_K: return {6, 8, 2, false, 5, 210};
        default: return {0, 1, 1, false, 0, 0};
    }
}

// The inputs of a block in the order that vectors take them: eight quads v of four inputs each, one byte a
// lane's input. Quad v holds the inputs 8 * (v / 2) + v % 2 + 2 * b for b = 0..3, which is what a shift by
// 4 * (v % 2) bits and a mask leave of a 32-bit word of eight consecutive 4-bit inputs.
//   4 bits: four words of 8 x 32 bits, lane = row.
//   5 bits: the lower four as above, then 8 x 32 bits: bit v of byte b of a lane is quad v's.
//   6 bits: the lower four as above, then 2 x 8 x 32 bits: of word v / 4 the bits 2 * (v % 4) of byte b.
//   8 bits: the eight quads as they are, signed.
//   floating: 32 times 8 numbers, lane = row.
constexpr int64_t quad_input(int64_t v, int64_t b) { return 8 * (v / 2) + v % 2 + 2 * b; }

// As 16-bit pairs, activations come with the bytes 0 and 2 of a quad first, then 1 and 3: of each eight inputs in
// the order 0 4 2 6 1 5 3 7. As bytes they come quad by quad: 0 2 4 6 1 3 5 7.

struct Matrix {
    int64_t kind;
    int64_t rows;
    int64_t cols;
    const uint8_t* data;
};

// One row of a packed matrix in float32.
void unpack_row(const Matrix& m, int64_t row, float* out);

}  // namespace mashbox
