// Registers as wide as there are, for the panels that one of them holds side by side: two of AVX-512's, else one, and
// then it is the eight lanes of lanes_*.h. Included behind that.
#pragma once

namespace {

// Every lane the same.
template <class V> V every(int32_t x);
template <class V> V every(float x);
template <> inline I8 every<I8>(int32_t x) { return all_whole(x); }
template <> inline F8 every<F8>(float x) { return all(x); }

template <class V> V wide_load(const int32_t* p);
template <class V> V wide_load(const float* p);
template <> inline I8 wide_load<I8>(const int32_t* p) { return load_words(reinterpret_cast<const uint8_t*>(p)); }
template <> inline F8 wide_load<F8>(const float* p) { return load(p); }
inline void wide_store(float* p, F8 a) { store(p, a); }

#if defined(__AVX512VNNI__)
using FW = __m512;
using IW = __m512i;
constexpr int kWide = 2;  // panels side by side
constexpr int kWides = 2, kWideRows = 4;  // registers of them, and rows, that a product of many rows takes together

template <> inline IW every<IW>(int32_t x) { return _mm512_set1_epi32(x); }
template <> inline FW every<FW>(float x) { return _mm512_set1_ps(x); }
template <> inline IW wide_load<IW>(const int32_t* p) { return _mm512_load_si512(p); }
template <> inline FW wide_load<FW>(const float* p) { return _mm512_load_ps(p); }
inline void wide_store(float* p, FW a) { _mm512_store_ps(p, a); }
inline FW mul(FW a, FW b) { return _mm512_mul_ps(a, b); }
inline FW fma(FW a, FW b, FW c) { return _mm512_fmadd_ps(a, b, c); }
inline FW to_float(IW a) { return _mm512_cvtepi32_ps(a); }
inline IW plus(IW a, IW b) { return _mm512_add_epi32(a, b); }
inline IW dot(IW acc, IW a, IW b) { return _mm512_dpwssd_epi32(acc, a, b); }
inline IW add_quad(IW some, IW w, IW x) { return _mm512_dpbusd_epi32(some, w, x); }
inline IW sum_of_quads(IW some) { return some; }
template <int by> IW shifted(IW a) { return _mm512_slli_epi32(a, by); }
#else
using FW = F8;
using IW = I8;
constexpr int kWide = 1, kWides = kPanels, kWideRows = kRows;
#endif

}  // namespace
