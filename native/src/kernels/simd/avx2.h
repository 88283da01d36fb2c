// AVX2 with FMA and F16C: the sixteen lanes of simd.h are two registers.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "../../inline.h"

namespace tribar::avx2 {

constexpr int kTileRows = 3, kQueryRows = 4, kScoreBlocks = 1, kValueStrips = 1;

struct F16 {
  __m256 a, b;
  static TRIBAR_INLINE F16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static TRIBAR_INLINE F16 splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static TRIBAR_INLINE F16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static TRIBAR_INLINE F16 load_fp16(const uint8_t* p) {
    auto* q = reinterpret_cast<const __m128i*>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
  }
  TRIBAR_INLINE void store(float* p) const {
    _mm256_storeu_ps(p, a);
    _mm256_storeu_ps(p + 8, b);
  }
  static TRIBAR_INLINE __m256i bf16_half(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x), high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), _mm256_or_si256(high, _mm256_set1_epi32(64)), is_nan);
  }
  TRIBAR_INLINE void store_int8(int8_t* p) const {
    const __m256i pairs = _mm256_packs_epi32(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b));
    const __m256i words = _mm256_permute4x64_epi64(pairs, 0xd8);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
  }
  TRIBAR_INLINE void store_bf16(uint16_t* p) const {
    const __m256i packed = _mm256_packus_epi32(bf16_half(a), bf16_half(b));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
  }
  TRIBAR_INLINE void store_bf16_spread(uint16_t* p) const {
    uint16_t values[16];
    store_bf16(values);
    for (int i = 0; i < 16; ++i) p[2 * i] = values[i];
  }
};
TRIBAR_INLINE F16 operator+(F16 x, F16 y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
TRIBAR_INLINE F16 operator-(F16 x, F16 y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
TRIBAR_INLINE F16 operator*(F16 x, F16 y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
TRIBAR_INLINE F16 operator/(F16 x, F16 y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
TRIBAR_INLINE F16 fma(F16 x, F16 y, F16 z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
TRIBAR_INLINE F16 max(F16 x, F16 y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
TRIBAR_INLINE F16 min(F16 x, F16 y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
TRIBAR_INLINE F16 where_negative(F16 x, F16 then, F16 otherwise) {
  return {_mm256_blendv_ps(otherwise.a, then.a, x.a), _mm256_blendv_ps(otherwise.b, then.b, x.b)};
}
TRIBAR_INLINE F16 keep_lanes(F16 x, int first, int last, float otherwise) {
  const __m256i low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), high = _mm256_add_epi32(low, _mm256_set1_epi32(8));
  const __m256i before = _mm256_set1_epi32(first), after = _mm256_set1_epi32(last);
  const auto dropped = [&](__m256i lane) {
    return _mm256_castsi256_ps(_mm256_or_si256(_mm256_cmpgt_epi32(before, lane), _mm256_cmpgt_epi32(lane, after)));
  };
  const __m256 other = _mm256_set1_ps(otherwise);
  return {_mm256_blendv_ps(x.a, other, dropped(low)), _mm256_blendv_ps(x.b, other, dropped(high))};
}
TRIBAR_INLINE unsigned equal_lanes(F16 x, F16 y) {
  const int low = _mm256_movemask_ps(_mm256_cmp_ps(x.a, y.a, _CMP_EQ_OQ));
  return static_cast<unsigned>(low | _mm256_movemask_ps(_mm256_cmp_ps(x.b, y.b, _CMP_EQ_OQ)) << 8);
}

TRIBAR_INLINE float lanes_sum(F16 x) {
  const __m256 eight = _mm256_add_ps(x.a, x.b);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
TRIBAR_INLINE float lanes_max(F16 x) {
  const __m256 eight = _mm256_max_ps(x.a, x.b);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

struct U64 {
  __m256i a, b;
  static TRIBAR_INLINE U64 load(const uint8_t* p) {
    auto* q = reinterpret_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
  }
  TRIBAR_INLINE U64 low() const {
    const __m256i mask = _mm256_set1_epi8(15);
    return {_mm256_and_si256(a, mask), _mm256_and_si256(b, mask)};
  }
  TRIBAR_INLINE U64 high() const {
    const __m256i mask = _mm256_set1_epi8(15);
    return {_mm256_and_si256(_mm256_srli_epi16(a, 4), mask), _mm256_and_si256(_mm256_srli_epi16(b, 4), mask)};
  }
};

struct I16 {
  __m256i a, b;
  static TRIBAR_INLINE I16 zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  TRIBAR_INLINE I16 total() const { return *this; }
  TRIBAR_INLINE F16 to_float() const { return {_mm256_cvtepi32_ps(a), _mm256_cvtepi32_ps(b)}; }
};
TRIBAR_INLINE I16 join(I16 high, I16 low, int32_t offset) {
  const __m256i o = _mm256_set1_epi32(offset);
  return {_mm256_sub_epi32(_mm256_add_epi32(_mm256_slli_epi32(high.a, 7), low.a), o),
          _mm256_sub_epi32(_mm256_add_epi32(_mm256_slli_epi32(high.b, 7), low.b), o)};
}
// vpmaddubsw saturates at 16 bits: 255 * 127 * 2 does not fit. The even and the odd bytes are therefore widened to 16
// bits and multiplied with vpmaddwd, which is exact.
TRIBAR_INLINE __m256i dot4_half(__m256i acc, __m256i w, __m256i q) {
  const __m256i low = _mm256_set1_epi16(0x00ff);
  __m256i even = _mm256_madd_epi16(_mm256_and_si256(w, low), _mm256_srai_epi16(_mm256_slli_epi16(q, 8), 8));
  __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(w, 8), _mm256_srai_epi16(q, 8));
  return _mm256_add_epi32(acc, _mm256_add_epi32(even, odd));
}
TRIBAR_INLINE I16 dot4(I16 acc, U64 w, const int8_t* q) {
  int32_t four;
  std::memcpy(&four, q, 4);
  const __m256i x = _mm256_set1_epi32(four);
  return {dot4_half(acc.a, w.a, x), dot4_half(acc.b, w.b, x)};
}

// With nibbles nothing saturates: 8 sums of two products are at most 8 * 2 * 15 * 127 = 30480 in magnitude.
struct NibbleSum {
  __m256i a, b;
  static TRIBAR_INLINE NibbleSum zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  TRIBAR_INLINE void add(U64 w, const int8_t* q) {
    int32_t four;
    std::memcpy(&four, q, 4);
    const __m256i x = _mm256_set1_epi32(four);
    a = _mm256_add_epi16(a, _mm256_maddubs_epi16(w.a, x));
    b = _mm256_add_epi16(b, _mm256_maddubs_epi16(w.b, x));
  }
  TRIBAR_INLINE I16 total() const {
    const __m256i ones = _mm256_set1_epi16(1);
    return {_mm256_madd_epi16(a, ones), _mm256_madd_epi16(b, ones)};
  }
};

struct B32 {
  __m256i a, b;
  static TRIBAR_INLINE B32 load(const uint8_t* p) {
    auto* q = reinterpret_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
  }
};
TRIBAR_INLINE __m256 dot2_half(__m256 acc, __m256i w, __m256 x0, __m256 x1) {
  const __m256 even = _mm256_castsi256_ps(_mm256_slli_epi32(w, 16));
  const __m256 odd = _mm256_castsi256_ps(_mm256_and_si256(w, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  return _mm256_fmadd_ps(odd, x1, _mm256_fmadd_ps(even, x0, acc));
}
TRIBAR_INLINE F16 dot2(F16 acc, B32 w, const uint16_t* x) {
  uint32_t two[2] = {static_cast<uint32_t>(x[0]) << 16, static_cast<uint32_t>(x[1]) << 16};
  float pair[2];
  std::memcpy(pair, two, 8);
  const __m256 x0 = _mm256_set1_ps(pair[0]), x1 = _mm256_set1_ps(pair[1]);
  return {dot2_half(acc.a, w.a, x0, x1), dot2_half(acc.b, w.b, x0, x1)};
}

TRIBAR_INLINE F16 round_even(F16 x) {
  constexpr int mode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.a, mode), _mm256_round_ps(x.b, mode)};
}
TRIBAR_INLINE __m256 power_half(__m256 n) {
  const __m256i bits = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_castsi256_ps(bits);
}
TRIBAR_INLINE F16 times_power_of_two(F16 x, F16 n) { return x * F16{power_half(n.a), power_half(n.b)}; }

}  // namespace tribar::avx2
