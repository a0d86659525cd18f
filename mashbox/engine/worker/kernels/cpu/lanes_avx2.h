// Eight lanes in a register of 256 bits: AVX2, FMA and F16C; where the file that includes this is compiled for it,
// VNNI of AVX-512 or of AVX, which take one instruction for a product and its sum. In whole numbers that is exact, so
// the results are the same bits.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace {

using F8 = __m256;
using I8 = __m256i;

// The inner functions of a product must be one: g++ gives up on its own where a function has grown long.
#if !defined(ALWAYS)
#define ALWAYS inline __attribute__((always_inline))
#endif
constexpr int kPanels = 2, kRows = 4;  // that a product takes together

#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
#define VNNI(name) _mm256_##name##_epi32
#elif defined(__AVXVNNI__)
#define VNNI(name) _mm256_##name##_avx_epi32
#endif
#if defined(VNNI)
constexpr bool kLifts = true;  // see product.inc
#else
constexpr bool kLifts = false;
#endif

inline F8 load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, F8 a) { _mm256_storeu_ps(p, a); }
inline F8 all(float x) { return _mm256_set1_ps(x); }
inline F8 add(F8 a, F8 b) { return _mm256_add_ps(a, b); }
inline F8 sub(F8 a, F8 b) { return _mm256_sub_ps(a, b); }
inline F8 mul(F8 a, F8 b) { return _mm256_mul_ps(a, b); }
inline F8 div(F8 a, F8 b) { return _mm256_div_ps(a, b); }
inline F8 fma(F8 a, F8 b, F8 c) { return _mm256_fmadd_ps(a, b, c); }
// The second operand where either is NaN.
inline F8 max(F8 a, F8 b) { return _mm256_max_ps(a, b); }
inline F8 min(F8 a, F8 b) { return _mm256_min_ps(a, b); }
inline F8 abs(F8 a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
inline F8 nearest(F8 a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline F8 half_load(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline void half_store(uint16_t* p, F8 a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
inline F8 bfloat_load(const uint16_t* p) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
// Eight bytes as numbers.
inline F8 unsigned_bytes(const uint8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
inline F8 signed_bytes(const uint8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
inline F8 to_float(I8 a) { return _mm256_cvtepi32_ps(a); }
// 2^n of whole numbers n from -126 to 127; anything for NaN.
inline F8 power_of_two(F8 n) {
    const I8 biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
}
inline I8 zero() { return _mm256_setzero_si256(); }
inline I8 load_words(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline int32_t four_bytes(const void* p) {
    int32_t bits;
    std::memcpy(&bits, p, 4);
    return bits;
}
inline I8 all_whole(int32_t x) { return _mm256_set1_epi32(x); }
inline I8 subtract(I8 a, I8 b) { return _mm256_sub_epi32(a, b); }
inline I8 keep(I8 a, int32_t mask) { return _mm256_and_si256(a, _mm256_set1_epi32(mask)); }
inline I8 either(I8 a, I8 b) { return _mm256_or_si256(a, b); }
// With these bits of each lane the other way.
inline I8 differing(I8 a, int32_t bits) { return _mm256_xor_si256(a, _mm256_set1_epi32(bits)); }
// Each lane moved by `by` bits to the left, or to the right for less than zero.
template <int by> I8 shifted(I8 a) {
    return by > 0 ? _mm256_slli_epi32(a, by > 0 ? by : 0) : by < 0 ? _mm256_srli_epi32(a, by < 0 ? -by : 0) : a;
}
// The bytes 0 and 2 of each lane in 16 bits, and the bytes 1 and 3.
inline I8 even_bytes(I8 w) { return _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8); }
inline I8 odd_bytes(I8 w) { return _mm256_srai_epi16(w, 8); }
inline I8 odd_unsigned(I8 w) { return _mm256_srli_epi16(w, 8); }
// acc + the sum of the products of each lane's two 16-bit halves.
inline I8 dot(I8 acc, I8 a, I8 b) {
#if defined(VNNI)
    return VNNI(dpwssd)(acc, a, b);
#else
    acc = _mm256_add_epi32(acc, _mm256_madd_epi16(a, b));
    asm("" : "+x"(acc));  // else g++ puts off the sums of a whole block, and spills all products
    return acc;
#endif
}
// The sums of the products of each lane's four bytes, added up over at most kQuads<bits> quads of weights below
// 2^bits with signed ones, and what they come to at last. AVX2 adds them up as two sums of 16 bits.
#if defined(VNNI)
template <int bits> constexpr int kQuads = 8;
inline I8 add_quad(I8 some, I8 w, I8 x) { return VNNI(dpbusd)(some, w, x); }
inline I8 sum_of_quads(I8 some) { return some; }
#else
template <int bits> constexpr int kQuads = 32767 / (2 * 127 * ((1 << bits) - 1));
inline I8 add_quad(I8 some, I8 w, I8 x) {
    some = _mm256_add_epi16(some, _mm256_maddubs_epi16(w, x));
    asm("" : "+x"(some));  // as in dot()
    return some;
}
inline I8 sum_of_quads(I8 some) { return _mm256_madd_epi16(some, _mm256_set1_epi16(1)); }
#endif
// acc + the sum of the products of each lane's four bytes, both signed; x not -128.
inline I8 add_signed_quad(I8 acc, I8 w, I8 x) {
    const I8 pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
inline I8 plus(I8 a, I8 b) { return _mm256_add_epi32(a, b); }
inline I8 to_whole(F8 a) { return _mm256_cvtps_epi32(a); }
inline void store_whole(int32_t* p, I8 a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a); }
// Sixteen numbers as 16 bits, each eight of them in the order 0 4 2 6 1 5 3 7.
inline void store_ordered(int16_t* p, I8 a, I8 b) {
    const I8 order = _mm256_setr_epi32(0, 4, 2, 6, 1, 5, 3, 7);
    const I8 halves = _mm256_packs_epi32(_mm256_permutevar8x32_epi32(a, order), _mm256_permutevar8x32_epi32(b, order));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(halves, 0xd8));
}
// The numbers of four vectors as bytes, each eight of them in the order 0 2 4 6 1 3 5 7.
inline void store_quads(int8_t* p, const I8* a) {
    const I8 bytes = _mm256_packs_epi16(_mm256_packs_epi32(a[0], a[1]), _mm256_packs_epi32(a[2], a[3]));
    const I8 inputs = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    const I8 quads = _mm256_shuffle_epi8(inputs, _mm256_broadcastsi128_si256(order));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), quads);
}
// As assembly, since g++ takes a function that only prefetches for one without effect, and drops its calls.
inline void prefetch(const uint8_t* p) { asm volatile("prefetcht0 %0" : : "m"(*p)); }

}  // namespace
