// Eight lanes in plain C++, for any processor.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

struct F8 {
    float v[8];
};
struct I8 {
    int32_t v[8];
};

#if !defined(ALWAYS)
#define ALWAYS inline
#endif
constexpr int kPanels = 1, kRows = 2;  // that a product takes together
constexpr bool kLifts = false;

#define LANES for (int i = 0; i < 8; ++i)

inline float half_to_float(uint16_t h) {
    const uint32_t sign = uint32_t(h & 0x8000) << 16;
    uint32_t exponent = (h >> 10) & 31, fraction = h & 1023, bits;
    if (exponent == 31) {
        bits = 0x7f800000 | fraction << 13;
    } else if (exponent) {
        bits = (exponent + 112) << 23 | fraction << 13;
    } else {
        float small = float(fraction) * (1.0f / 16777216.0f);
        std::memcpy(&bits, &small, 4);
    }
    bits |= sign;
    float out;
    std::memcpy(&out, &bits, 4);
    return out;
}

inline uint16_t float_to_half(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    const uint16_t sign = uint16_t(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return uint16_t(sign | 0x7e00);
    if (bits >= 0x477ff000) return uint16_t(sign | 0x7c00);  // what would round beyond 65504
    if (bits < 0x38800000) {
        float magnitude;
        std::memcpy(&magnitude, &bits, 4);
        return uint16_t(sign | uint16_t(std::nearbyint(magnitude * 16777216.0f)));
    }
    bits += 0xfff + (bits >> 13 & 1);  // to the nearest, ties to even
    return uint16_t(sign | ((bits >> 13) - (112 << 10)));
}

inline F8 load(const float* p) { F8 a; LANES a.v[i] = p[i]; return a; }
inline void store(float* p, F8 a) { LANES p[i] = a.v[i]; }
inline F8 all(float x) { F8 a; LANES a.v[i] = x; return a; }
inline F8 add(F8 a, F8 b) { LANES a.v[i] += b.v[i]; return a; }
inline F8 sub(F8 a, F8 b) { LANES a.v[i] -= b.v[i]; return a; }
inline F8 mul(F8 a, F8 b) { LANES a.v[i] *= b.v[i]; return a; }
inline F8 div(F8 a, F8 b) { LANES a.v[i] /= b.v[i]; return a; }
inline F8 fma(F8 a, F8 b, F8 c) { LANES c.v[i] += a.v[i] * b.v[i]; return c; }
// The second operand where either is NaN.
inline F8 max(F8 a, F8 b) { LANES b.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i]; return b; }
inline F8 min(F8 a, F8 b) { LANES b.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i]; return b; }
inline F8 abs(F8 a) { LANES a.v[i] = std::fabs(a.v[i]); return a; }
inline F8 nearest(F8 a) { LANES a.v[i] = std::nearbyint(a.v[i]); return a; }
inline F8 half_load(const uint16_t* p) { F8 a; LANES a.v[i] = half_to_float(p[i]); return a; }
inline void half_store(uint16_t* p, F8 a) { LANES p[i] = float_to_half(a.v[i]); }
inline F8 bfloat_load(const uint16_t* p) {
    F8 a;
    LANES {
        const uint32_t bits = uint32_t(p[i]) << 16;
        std::memcpy(&a.v[i], &bits, 4);
    }
    return a;
}
// Eight bytes as numbers.
inline F8 unsigned_bytes(const uint8_t* p) { F8 a; LANES a.v[i] = float(p[i]); return a; }
inline F8 signed_bytes(const uint8_t* p) { F8 a; LANES a.v[i] = float(int8_t(p[i])); return a; }
inline F8 to_float(I8 a) { F8 b; LANES b.v[i] = float(a.v[i]); return b; }
// 2^n of whole numbers n from -126 to 127; anything for NaN.
inline F8 power_of_two(F8 n) {
    LANES {
        const int32_t whole = n.v[i] >= -126 && n.v[i] <= 127 ? int32_t(n.v[i]) : 0;
        const uint32_t bits = uint32_t(whole + 127) << 23;
        std::memcpy(&n.v[i], &bits, 4);
    }
    return n;
}
inline I8 zero() { I8 a; LANES a.v[i] = 0; return a; }
inline I8 load_words(const uint8_t* p) { I8 a; std::memcpy(a.v, p, 32); return a; }
inline int32_t four_bytes(const void* p) {
    int32_t bits;
    std::memcpy(&bits, p, 4);
    return bits;
}
inline I8 all_whole(int32_t x) { I8 a; LANES a.v[i] = x; return a; }
inline I8 subtract(I8 a, I8 b) { LANES a.v[i] -= b.v[i]; return a; }
inline I8 keep(I8 a, int32_t mask) { LANES a.v[i] &= mask; return a; }
inline I8 either(I8 a, I8 b) { LANES a.v[i] |= b.v[i]; return a; }
// With these bits of each lane the other way.
inline I8 differing(I8 a, int32_t bits) { LANES a.v[i] ^= bits; return a; }
// Each lane moved by `by` bits to the left, or to the right for less than zero.
template <int by> I8 shifted(I8 a) {
    LANES a.v[i] = int32_t(by > 0 ? uint32_t(a.v[i]) << (by > 0 ? by : 0) : uint32_t(a.v[i]) >> (by < 0 ? -by : 0));
    return a;
}
// The bytes 0 and 2 of each lane in 16 bits, and the bytes 1 and 3.
inline int32_t two(int16_t low, int16_t high) { return int32_t(uint32_t(uint16_t(high)) << 16 | uint16_t(low)); }
inline I8 even_bytes(I8 w) {
    LANES w.v[i] = two(int8_t(w.v[i]), int8_t(w.v[i] >> 16));
    return w;
}
inline I8 odd_bytes(I8 w) {
    LANES w.v[i] = two(int8_t(w.v[i] >> 8), int8_t(w.v[i] >> 24));
    return w;
}
inline I8 odd_unsigned(I8 w) {
    LANES w.v[i] = int32_t(uint32_t(w.v[i]) >> 8 & 0x00ff00ff);
    return w;
}
// acc + the sum of the products of each lane's two 16-bit halves.
inline I8 dot(I8 acc, I8 a, I8 b) {
    LANES acc.v[i] += int16_t(a.v[i]) * int16_t(b.v[i]) + (a.v[i] >> 16) * (b.v[i] >> 16);
    return acc;
}
// The sums of the products of each lane's four bytes, weights below 2^bits with signed ones.
template <int bits> constexpr int kQuads = 8;
inline I8 add_quad(I8 some, I8 w, I8 x) {
    LANES for (int b = 0; b < 32; b += 8) some.v[i] += uint8_t(w.v[i] >> b) * int8_t(x.v[i] >> b);
    return some;
}
inline I8 sum_of_quads(I8 some) { return some; }
// The same, both signed.
inline I8 add_signed_quad(I8 acc, I8 w, I8 x) {
    LANES for (int b = 0; b < 32; b += 8) acc.v[i] += int8_t(w.v[i] >> b) * int8_t(x.v[i] >> b);
    return acc;
}
inline I8 plus(I8 a, I8 b) { LANES a.v[i] += b.v[i]; return a; }
inline I8 to_whole(F8 a) { I8 b; LANES b.v[i] = int32_t(a.v[i]); return b; }
inline void store_whole(int32_t* p, I8 a) { std::memcpy(p, a.v, 32); }
// Sixteen numbers as 16 bits, each eight of them in the order 0 4 2 6 1 5 3 7.
inline void store_ordered(int16_t* p, I8 a, I8 b) {
    constexpr int order[8] = {0, 4, 2, 6, 1, 5, 3, 7};
    LANES p[i] = int16_t(a.v[order[i]]);
    LANES p[8 + i] = int16_t(b.v[order[i]]);
}
// The numbers of four vectors as bytes, each eight of them in the order 0 2 4 6 1 3 5 7.
inline void store_quads(int8_t* p, const I8* a) {
    constexpr int order[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    for (int v = 0; v < 4; ++v) LANES p[8 * v + i] = int8_t(a[v].v[order[i]]);
}
inline void prefetch(const uint8_t*) {}

#undef LANES

}  // namespace
