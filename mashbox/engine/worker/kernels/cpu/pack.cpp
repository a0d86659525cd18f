// From a GGUF file's blocks to panels, and one row of them back to numbers. The formats of the file are those
// of ggml-common.h.
#include <cstring>

#include "layout.h"
#include "mashbox_cpu.h"

namespace mashbox {
namespace {

// A block of 32 weights of one row as whole numbers, in the order of its inputs.
struct Block {
    uint8_t q[32];
};

uint32_t nibble(const uint8_t* bytes, int64_t i) { return i < 16 ? bytes[i] & 15 : bytes[i - 16] >> 4; }

// The blocks of 32 that a file keeps one by one; `at` is where their whole numbers begin.
Block read_plain(const Layout& form, const uint8_t* from) {
    Block block;
    const uint8_t* at = from + (form.minimum ? 4 : 2);
    if (form.bits == 8) {
        std::memcpy(block.q, at, 32);
        return block;
    }
    uint32_t fifth = 0;
    if (form.bits == 5) {
        std::memcpy(&fifth, at, 4);
        at += 4;
    }
    for (int64_t i = 0; i < 32; ++i) block.q[i] = uint8_t(nibble(at, i) | (fifth >> i & 1) << 4);
    return block;
}

// Block b of the 8 of a Q4_K or Q5_K unit: 64 inputs share 32 bytes, low halves first.
Block read_k(const Layout& form, const uint8_t* from, int64_t b) {
    Block block;
    const uint8_t* fifth = from + 16;
    const uint8_t* bytes = from + (form.bits == 5 ? 48 : 16) + 32 * (b / 2);
    for (int64_t i = 0; i < 32; ++i) {
        block.q[i] = b % 2 ? bytes[i] >> 4 : bytes[i] & 15;
        if (form.bits == 5) block.q[i] = uint8_t(block.q[i] | (fifth[i] >> b & 1) << 4);
    }
    return block;
}

// Block b of the 8 of a Q6_K unit: 128 inputs share 64 bytes of lower and 32 of upper bits.
Block read_q6(const uint8_t* from, int64_t b) {
    Block block;
    const int64_t half = b / 4, quarter = b % 4;
    const uint8_t* lower = from + 64 * half + 32 * (quarter % 2);
    const uint8_t* upper = from + 128 + 32 * half;
    for (int64_t i = 0; i < 32; ++i) {
        const int low = quarter < 2 ? lower[i] & 15 : lower[i] >> 4;
        block.q[i] = uint8_t(low | (upper[i] >> 2 * quarter & 3) << 4);
    }
    return block;
}

// The scale and the minimum of block b: 6 bits each, the upper two of the last four blocks spread over the
// bytes of the first.
void read_k_steps(const uint8_t* bytes, int64_t b, uint8_t* step, uint8_t* minimum) {
    if (b < 4) {
        *step = bytes[b] & 63;
        *minimum = bytes[b + 4] & 63;
    } else {
        *step = uint8_t((bytes[b + 4] & 15) | (bytes[b - 4] >> 6) << 4);
        *minimum = uint8_t(bytes[b + 4] >> 4 | (bytes[b] >> 6) << 4);
    }
}

void write_weights(const Layout& form, const Block& block, int64_t lane, uint8_t* to) {
    for (int64_t v = 0; v < 8; ++v) {
        for (int64_t b = 0; b < 4; ++b) {
            const uint8_t q = block.q[quad_input(v, b)];
            if (form.bits == 8) {
                to[32 * v + 4 * lane + b] = q;
                continue;
            }
            to[32 * (v / 2) + 4 * lane + b] |= uint8_t((q & 15) << 4 * (v % 2));
            if (form.bits == 5) to[128 + 4 * lane + b] |= uint8_t((q >> 4) << v);
            if (form.bits == 6) to[128 + 32 * (v / 4) + 4 * lane + b] |= uint8_t((q >> 4) << 2 * (v % 4));
        }
    }
}

void put_half(uint8_t* to, int64_t lane, const uint8_t* from) { std::memcpy(to + 2 * lane, from, 2); }

// Half precision with the other sign: a file's K kinds subtract their minima.
void put_negated(uint8_t* to, int64_t lane, const uint8_t* from) {
    to[2 * lane] = from[0];
    to[2 * lane + 1] = from[1] ^ 0x80;
}

void pack_unit(int64_t kind, const Layout& form, const uint8_t* from, int64_t lane, uint8_t* unit) {
    if (form.floating()) {
        const int64_t size = form.bits / 8;
        for (int64_t i = 0; i < kGroup; ++i) std::memcpy(unit + (8 * i + lane) * size, from + i * size, size_t(size));
        return;
    }
    uint8_t* halves = unit + form.halves();
    if (!form.fine()) {
        write_weights(form, read_plain(form, from), lane, unit);
        put_half(halves, lane, from);
        if (form.minimum) put_half(halves + 16, lane, from + 2);
        return;
    }
    for (int64_t b = 0; b < form.blocks; ++b) {
        uint8_t* steps = unit + form.steps() + kLanes * b * form.parts + lane;
        const Block block = kind == kQ6_K ? read_q6(from, b) : read_k(form, from, b);
        write_weights(form, block, lane, unit + b * form.weight_bytes());
        if (kind == kQ6_K) {
            steps[0] = from[192 + 2 * b];
            steps[kLanes] = from[192 + 2 * b + 1];
        } else {
            read_k_steps(from + 4, b, steps, unit + form.minima() + kLanes * b + lane);
        }
    }
    put_half(halves, lane, kind == kQ6_K ? from + 208 : from);
    if (form.minimum) put_negated(halves + 16, lane, from + 2);
}

float from_bits(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

float half(const uint8_t* p) {
    const uint32_t h = p[0] | uint32_t(p[1]) << 8, exponent = h >> 10 & 31, fraction = h & 1023;
    float size;
    if (exponent == 31) {
        size = fraction ? __builtin_nanf("") : __builtin_inff();
    } else {
        size = exponent ? from_bits((exponent + 112) << 23 | fraction << 13) : float(fraction) / 16777216.0f;
    }
    return h & 0x8000 ? -size : size;
}

float floating_weight(int64_t kind, const uint8_t* unit, int64_t at) {
    if (kind == kF16) return half(unit + 2 * at);
    if (kind == kBF16) return from_bits(uint32_t(unit[2 * at]) << 16 | uint32_t(unit[2 * at + 1]) << 24);
    float value;
    std::memcpy(&value, unit + 4 * at, 4);
    return value;
}

int whole_weight(const Layout& form, const uint8_t* block, int64_t lane, int64_t v, int64_t b) {
    if (form.bits == 8) return int8_t(block[32 * v + 4 * lane + b]);
    int q = block[32 * (v / 2) + 4 * lane + b] >> 4 * (v % 2) & 15;
    if (form.bits == 5) q |= (block[128 + 4 * lane + b] >> v & 1) << 4;
    if (form.bits == 6) q |= (block[128 + 32 * (v / 4) + 4 * lane + b] >> 2 * (v % 4) & 3) << 4;
    return form.offset ? q - (1 << form.offset) : q;
}

void unpack_unit(int64_t kind, const Layout& form, const uint8_t* unit, int64_t lane, float* out) {
    if (form.floating()) {
        for (int64_t i = 0; i < kGroup; ++i) out[i] = floating_weight(kind, unit, 8 * i + lane);
        return;
    }
    const uint8_t* halves = unit + form.halves() + 2 * lane;
    const float scale = half(halves), least = form.minimum ? half(halves + 16) : 0.0f;
    for (int64_t block = 0; block < form.blocks; ++block, out += kGroup) {
        float step[2] = {scale, scale}, minimum = least;
        for (int64_t part = 0; form.fine() && part < 2; ++part) {
            const int64_t at = form.steps() + kLanes * (block * form.parts + part % form.parts) + lane;
            step[part] *= float(form.parts == 2 ? int(int8_t(unit[at])) : int(unit[at]));
        }
        if (form.fine() && form.minimum) minimum *= float(unit[form.minima() + kLanes * block + lane]);
        for (int64_t i = 0; i < kGroup; ++i) {
            const int64_t input = quad_input(i / 4, i % 4);
            const int q = whole_weight(form, unit + block * form.weight_bytes(), lane, i / 4, i % 4);
            out[input] = step[input / 16] * float(q) + minimum;
        }
    }
}

}  // namespace

void unpack_row(const Matrix& m, int64_t row, float* out) {
    const Layout form = layout(m.kind);
    const int64_t units = m.cols / form.inputs(), lane = row % kLanes;
    const uint8_t* unit = m.data + row / kLanes * units * form.bytes();
    for (int64_t u = 0; u < units; ++u, unit += form.bytes(), out += form.inputs()) {
        unpack_unit(m.kind, form, unit, lane, out);
    }
}

}  // namespace mashbox

using namespace mashbox;

extern "C" int64_t mashbox_packed_bytes(int64_t kind, int64_t rows, int64_t cols) {
    const Layout form = layout(kind);
    if (!form.known() || rows < 1 || cols < 1 || cols % form.inputs()) return 0;
    return (rows + kLanes - 1) / kLanes * (cols / form.inputs()) * form.bytes();
}

extern "C" void mashbox_pack(int64_t kind, const uint8_t* source, int64_t rows, int64_t cols, uint8_t* out) {
    const Layout form = layout(kind);
    const int64_t units = cols / form.inputs();
    std::memset(out, 0, size_t(mashbox_packed_bytes(kind, rows, cols)));
    for (int64_t row = 0; row < rows; ++row) {
        uint8_t* unit = out + row / kLanes * units * form.bytes();
        for (int64_t u = 0; u < units; ++u, unit += form.bytes(), source += form.source_bytes) {
            pack_unit(kind, form, source, row % kLanes, unit);
        }
    }
}

extern "C" void mashbox_unpack(const mashbox_matrix* m, int64_t row, float* out) {
    unpack_row(Matrix{m->kind, m->rows, m->cols, m->data}, row, out);
}
