// AVX-512 with VNNI and BF16: the sixteen lanes of simd.h are one register.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "../../inline.h"

namespace tribar::avx512 {

constexpr int kTileRows = 12, kQueryRows = 6, kScoreBlocks = 4, kValueStrips = 4;

TRIBAR_INLINE unsigned lanes_from(int lane) { return 0xffffu << (lane < 0 ? 0 : lane > 16 ? 16 : lane); }

struct F16 {
  __m512 v;
  static TRIBAR_INLINE F16 zero() { return {_mm512_setzero_ps()}; }
  static TRIBAR_INLINE F16 splat(float x) { return {_mm512_set1_ps(x)}; }
  static TRIBAR_INLINE F16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static TRIBAR_INLINE F16 load_fp16(const uint8_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
  TRIBAR_INLINE void store(float* p) const { _mm512_storeu_ps(p, v); }
  TRIBAR_INLINE void store_int8(int8_t* p) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(v)));
  }
  TRIBAR_INLINE void store_bf16(uint16_t* p) const {  // denormals become zero, as in dot2
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(v));
  }
  TRIBAR_INLINE void store_bf16_spread(uint16_t* p) const {
    _mm512_mask_storeu_epi16(p, 0x55555555, _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(v)));
  }
};
TRIBAR_INLINE F16 operator+(F16 a, F16 b) { return {_mm512_add_ps(a.v, b.v)}; }
TRIBAR_INLINE F16 operator-(F16 a, F16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
TRIBAR_INLINE F16 operator*(F16 a, F16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
TRIBAR_INLINE F16 operator/(F16 a, F16 b) { return {_mm512_div_ps(a.v, b.v)}; }
TRIBAR_INLINE F16 fma(F16 a, F16 b, F16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
TRIBAR_INLINE F16 max(F16 a, F16 b) { return {_mm512_max_ps(a.v, b.v)}; }
TRIBAR_INLINE F16 min(F16 a, F16 b) { return {_mm512_min_ps(a.v, b.v)}; }
TRIBAR_INLINE F16 where_negative(F16 x, F16 then, F16 otherwise) {
  return {_mm512_mask_blend_ps(_mm512_movepi32_mask(_mm512_castps_si512(x.v)), otherwise.v, then.v)};
}
TRIBAR_INLINE F16 keep_lanes(F16 x, int first, int last, float otherwise) {
  const unsigned kept = lanes_from(first) & ~lanes_from(last + 1);
  return {_mm512_mask_blend_ps(static_cast<__mmask16>(kept), _mm512_set1_ps(otherwise), x.v)};
}
TRIBAR_INLINE unsigned equal_lanes(F16 a, F16 b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ); }
TRIBAR_INLINE float lanes_sum(F16 x) { return _mm512_reduce_add_ps(x.v); }
TRIBAR_INLINE float lanes_max(F16 x) { return _mm512_reduce_max_ps(x.v); }

struct U64 {
  __m512i v;
  static TRIBAR_INLINE U64 load(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
  TRIBAR_INLINE U64 low() const { return {_mm512_and_si512(v, _mm512_set1_epi8(15))}; }
  TRIBAR_INLINE U64 high() const {
    return {_mm512_and_si512(_mm512_srli_epi16(v, 4), _mm512_set1_epi8(15))};
  }
};

struct I16 {
  __m512i v;
  static TRIBAR_INLINE I16 zero() { return {_mm512_setzero_si512()}; }
  TRIBAR_INLINE I16 total() const { return *this; }
  TRIBAR_INLINE F16 to_float() const { return {_mm512_cvtepi32_ps(v)}; }
};
TRIBAR_INLINE I16 join(I16 high, I16 low, int32_t offset) {
  return {_mm512_sub_epi32(_mm512_add_epi32(_mm512_slli_epi32(high.v, 7), low.v), _mm512_set1_epi32(offset))};
}
TRIBAR_INLINE I16 dot4(I16 acc, U64 w, const int8_t* q) {
  int32_t four;
  std::memcpy(&four, q, 4);
  return {_mm512_dpbusd_epi32(acc.v, w.v, _mm512_set1_epi32(four))};
}

struct NibbleSum {
  I16 v;
  static TRIBAR_INLINE NibbleSum zero() { return {I16::zero()}; }
  TRIBAR_INLINE void add(U64 w, const int8_t* q) { v = dot4(v, w, q); }
  TRIBAR_INLINE I16 total() const { return v; }
};

struct B32 {
  __m512i v;
  static TRIBAR_INLINE B32 load(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
};
// The same two bf16 in every lane. Clang 16 crashes on the second form; Clang 15 and 19 make the same of both.
TRIBAR_INLINE __m512bh splat_pair(const uint16_t* x) {
  int32_t two;
  std::memcpy(&two, x, 4);
#ifdef __clang__
  return (__m512bh)_mm512_broadcastd_epi32(_mm_cvtsi32_si128(two));
#else
  return (__m512bh)_mm512_set1_epi32(two);
#endif
}
TRIBAR_INLINE F16 dot2(F16 acc, B32 w, const uint16_t* x) {
  return {_mm512_dpbf16_ps(acc.v, (__m512bh)w.v, splat_pair(x))};
}

TRIBAR_INLINE F16 round_even(F16 x) { return {_mm512_roundscale_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
TRIBAR_INLINE F16 times_power_of_two(F16 x, F16 n) { return {_mm512_scalef_ps(x.v, n.v)}; }

}  // namespace tribar::avx512
