// From a GGUF file's blocks of 32 weights to panels; the formats are those of ggml-common.h.
#include <cstring>

#include "mashbox_cpu.h"
#include "ops.h"

namespace {

using namespace mashbox;

enum Kind { kQ4_0 = 2, kQ4_1 = 3, kQ8_0 = 8 };  // ggml's numbers

int64_t source_bytes(int kind) { return kind == kQ4_0 ? 18 : kind == kQ4_1 ? 20 : kind == kQ8_0 ? 34 : 0; }

// The 4-bit weight i of a block: the low halves of its 16 bytes come first, then the high ones.
uint32_t nibble(const uint8_t* bytes, int64_t i) { return i < 16 ? bytes[i] & 15 : bytes[i - 16] >> 4; }

void put_half(uint8_t* to, int64_t lane, const uint8_t* from) { std::memcpy(to + 2 * lane, from, 2); }

void pack4(int kind, const uint8_t* from, int64_t lane, uint8_t* block) {
    const uint8_t* bytes = from + (kind == kQ4_0 ? 2 : 4);
    for (int64_t word = 0; word < 4; ++word) {
        uint32_t bits = 0;
        for (int64_t k = 0; k < 8; ++k) bits |= nibble(bytes, 8 * word + k) << (4 * k);
        std::memcpy(block + 32 * word + 4 * lane, &bits, 4);
    }
    put_half(block + 128, lane, from);
    if (kind == kQ4_1) {
        put_half(block + 144, lane, from + 2);
        return;
    }
    // -8 times the scale. Eight times a half is one with 3 more in its exponent, if that has room.
    uint16_t scale;
    std::memcpy(&scale, from, 2);
    const uint16_t size = scale & 0x7fff, sign = ~scale & 0x8000;
    uint16_t minimum;
    if (size >= 0x0400) {
        minimum = size < 0x7c00 - 0x0c00 ? uint16_t(sign | (size + 0x0c00)) : uint16_t(0x7e00);
    } else {
        // Below the normal numbers: its fraction times eight, brought back to the form of one.
        uint32_t fraction = uint32_t(size) * 8, exponent = 0;
        if (fraction >= 0x0400) {
            exponent = 1;
            while (fraction >= 0x0800) {
                fraction >>= 1;
                ++exponent;
            }
            fraction &= 0x03ff;
        }
        minimum = uint16_t(sign | exponent << 10 | fraction);
    }
    std::memcpy(block + 144 + 2 * lane, &minimum, 2);
}

void pack8(const uint8_t* from, int64_t lane, uint8_t* block) {
    const uint8_t* bytes = from + 2;
    for (int64_t p = 0; p < 16; ++p) {
        uint8_t* word = block + 32 * (p / 2) + 4 * lane + p % 2;
        word[0] = bytes[pair_input(p)];
        word[2] = bytes[pair_input(p) + 4];
    }
    put_half(block + 256, lane, from);
}

}  // namespace

extern "C" int64_t mashbox_packed_bytes(int kind, int64_t rows, int64_t cols) {
    if (!source_bytes(kind) || cols % kGroup) return 0;
    return (rows + kLanes - 1) / kLanes * (cols / kGroup) * block_bytes(kind == kQ8_0 ? 8 : 4);
}

extern "C" void mashbox_pack(int kind, const uint8_t* source, int64_t rows, int64_t cols, uint8_t* out) {
    const int64_t blocks = cols / kGroup, bytes = block_bytes(kind == kQ8_0 ? 8 : 4);
    std::memset(out, 0, size_t(mashbox_packed_bytes(kind, rows, cols)));
    for (int64_t row = 0; row < rows; ++row) {
        uint8_t* block = out + row / kLanes * blocks * bytes;
        for (int64_t b = 0; b < blocks; ++b, block += bytes, source += source_bytes(kind)) {
            if (kind == kQ8_0) {
                pack8(source, row % kLanes, block);
            } else {
                pack4(kind, source, row % kLanes, block);
            }
        }
    }
}
