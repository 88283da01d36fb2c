// Sixteen lanes of float and of int32 for each CPU level, so that every kernel is written once.
//
// The including file is compiled once per level with TRIBAR_LEVEL_AVX512, TRIBAR_LEVEL_AVX2 or TRIBAR_LEVEL_PORTABLE
// defined, into a namespace of its own. Within a level the operations are exact IEEE single operations in a fixed
// order: -ffp-contract=off keeps the compiler from fusing what is not written as fma().
//
// These files are compiled with instructions that the CPU may lack, so nothing in them may end up as a shared inline
// function that the linker could pick for everybody: no standard library templates, and inline code only by
// TRIBAR_INLINE or in an unnamed namespace.
#pragma once
#include <cstdint>
#include <cstring>

#include "../inline.h"

#if defined(TRIBAR_LEVEL_AVX512) || defined(TRIBAR_LEVEL_AVX2)
#include <immintrin.h>
#endif

#if defined(TRIBAR_LEVEL_AVX512)
#define TRIBAR_NAMESPACE avx512
#elif defined(TRIBAR_LEVEL_AVX2)
#define TRIBAR_NAMESPACE avx2
#else
#define TRIBAR_NAMESPACE portable
#endif
// A loop over registers: only unrolled does it keep its array in them.
#ifdef __clang__
#define TRIBAR_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TRIBAR_UNROLL _Pragma("GCC unroll 16")
#endif

namespace tribar::TRIBAR_NAMESPACE {

#if defined(TRIBAR_LEVEL_AVX512)

// Accumulators that fit the registers: rows of a GEMM tile; query rows of an attention tile, and for these the blocks
// scored together and the 16-column strips of V added together.
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
  TRIBAR_INLINE void store_int8(int8_t* p) const {  // whole numbers of at most 127 in magnitude
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(v)));
  }
  TRIBAR_INLINE void store_bf16(uint16_t* p) const {  // denormals become zero, as in dot2
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(v));
  }
  // At p[0], p[2], ...: what lies between is not even read, because another thread may be writing it.
  TRIBAR_INLINE void store_bf16_spread(uint16_t* p) const {
    _mm512_mask_storeu_epi16(p, 0x55555555, _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(v)));
  }
};
TRIBAR_INLINE F16 operator+(F16 a, F16 b) { return {_mm512_add_ps(a.v, b.v)}; }
TRIBAR_INLINE F16 operator-(F16 a, F16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
TRIBAR_INLINE F16 operator*(F16 a, F16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
TRIBAR_INLINE F16 operator/(F16 a, F16 b) { return {_mm512_div_ps(a.v, b.v)}; }
TRIBAR_INLINE F16 fma(F16 a, F16 b, F16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// max and min give the second operand where either is NaN. where_negative goes by the sign bit. keep_lanes replaces what
// is outside [first, last]. equal_lanes is a bit set.
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
// All 16 lanes, halves onto halves. lanes_max is meaningless where one is NaN.
TRIBAR_INLINE float lanes_sum(F16 x) { return _mm512_reduce_add_ps(x.v); }
TRIBAR_INLINE float lanes_max(F16 x) { return _mm512_reduce_max_ps(x.v); }

// 64 unsigned bytes: 16 lanes of 4 inputs.
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
// 128 * high + low - offset.
TRIBAR_INLINE I16 join(I16 high, I16 low, int32_t offset) {
  return {_mm512_sub_epi32(_mm512_add_epi32(_mm512_slli_epi32(high.v, 7), low.v), _mm512_set1_epi32(offset))};
}
// acc + the exact dot products of 4 unsigned bytes per lane with the same 4 signed bytes.
TRIBAR_INLINE I16 dot4(I16 acc, U64 w, const int8_t* q) {
  int32_t four;
  std::memcpy(&four, q, 4);
  return {_mm512_dpbusd_epi32(acc.v, w.v, _mm512_set1_epi32(four))};
}

// The same where the unsigned bytes are at most 15, for at most 8 times 4 inputs.
struct NibbleSum {
  I16 v;
  static TRIBAR_INLINE NibbleSum zero() { return {I16::zero()}; }
  TRIBAR_INLINE void add(U64 w, const int8_t* q) { v = dot4(v, w, q); }
  TRIBAR_INLINE I16 total() const { return v; }
};

// 16 lanes of 2 bf16 each, dotted with the same 2 bf16.
struct B32 {
  __m512i v;
  static TRIBAR_INLINE B32 load(const uint8_t* p) { return {_mm512_loadu_si512(p)}; }
};
TRIBAR_INLINE F16 dot2(F16 acc, B32 w, const uint16_t* x) {
  int32_t two;
  std::memcpy(&two, x, 4);
  return {_mm512_dpbf16_ps(acc.v, (__m512bh)w.v, (__m512bh)_mm512_set1_epi32(two))};
}

TRIBAR_INLINE F16 round_even(F16 x) { return {_mm512_roundscale_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
TRIBAR_INLINE F16 times_power_of_two(F16 x, F16 n) { return {_mm512_scalef_ps(x.v, n.v)}; }

#elif defined(TRIBAR_LEVEL_AVX2)

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
  static TRIBAR_INLINE __m256i bf16_half(__m256 x) {  // round to nearest even; NaN stays NaN, quiet
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

#else

constexpr int kTileRows = 2, kQueryRows = 2, kScoreBlocks = 1, kValueStrips = 1;

TRIBAR_INLINE float float_from_fp16(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16, rest = h & 0x7fff;
  float value;
  if (rest >= 0x7c00) {
    uint32_t bits = sign | 0x7f800000u | ((rest & 0x3ffu) << 13);
    std::memcpy(&value, &bits, 4);
    return value;
  }
  uint32_t bits = rest << 13;
  std::memcpy(&value, &bits, 4);
  value *= 5.192296858534828e33f;  // 2^112 moves the exponent bias from 15 to 127, denormals included
  return sign ? -value : value;
}

struct F16 {
  float v[16];
  static TRIBAR_INLINE F16 splat(float x) {
    F16 r;
    for (int i = 0; i < 16; ++i) r.v[i] = x;
    return r;
  }
  static TRIBAR_INLINE F16 zero() { return splat(0.0f); }
  static TRIBAR_INLINE F16 load(const float* p) {
    F16 r;
    std::memcpy(r.v, p, 64);
    return r;
  }
  static TRIBAR_INLINE F16 load_fp16(const uint8_t* p) {
    F16 r;
    uint16_t h[16];
    std::memcpy(h, p, 32);
    for (int i = 0; i < 16; ++i) r.v[i] = float_from_fp16(h[i]);
    return r;
  }
  TRIBAR_INLINE void store(float* p) const { std::memcpy(p, v, 64); }
  TRIBAR_INLINE void store_int8(int8_t* p) const {
    for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(v[i]);
  }
  TRIBAR_INLINE void store_bf16(uint16_t* p) const {  // round to nearest even; NaN stays NaN, quiet
    uint32_t bits[16];
    std::memcpy(bits, v, 64);
    for (int i = 0; i < 16; ++i) {
      const uint32_t rounded = (bits[i] + 0x7fff + ((bits[i] >> 16) & 1)) >> 16;
      p[i] = static_cast<uint16_t>((bits[i] & 0x7fffffff) > 0x7f800000 ? (bits[i] >> 16) | 64 : rounded);
    }
  }
  TRIBAR_INLINE void store_bf16_spread(uint16_t* p) const {
    uint16_t values[16];
    store_bf16(values);
    for (int i = 0; i < 16; ++i) p[2 * i] = values[i];
  }
};
#define TRIBAR_LANES(expression) \
  F16 r;                         \
  for (int i = 0; i < 16; ++i) r.v[i] = (expression); \
  return r
TRIBAR_INLINE F16 operator+(const F16& a, const F16& b) { TRIBAR_LANES(a.v[i] + b.v[i]); }
TRIBAR_INLINE F16 operator-(const F16& a, const F16& b) { TRIBAR_LANES(a.v[i] - b.v[i]); }
TRIBAR_INLINE F16 operator*(const F16& a, const F16& b) { TRIBAR_LANES(a.v[i] * b.v[i]); }
TRIBAR_INLINE F16 operator/(const F16& a, const F16& b) { TRIBAR_LANES(a.v[i] / b.v[i]); }
TRIBAR_INLINE F16 fma(const F16& a, const F16& b, const F16& c) { TRIBAR_LANES(a.v[i] * b.v[i] + c.v[i]); }
TRIBAR_INLINE F16 max(const F16& a, const F16& b) { TRIBAR_LANES(a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
TRIBAR_INLINE F16 min(const F16& a, const F16& b) { TRIBAR_LANES(a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
TRIBAR_INLINE F16 where_negative(const F16& x, const F16& then, const F16& otherwise) {
  TRIBAR_LANES(__builtin_signbit(x.v[i]) ? then.v[i] : otherwise.v[i]);
}
TRIBAR_INLINE F16 keep_lanes(const F16& x, int first, int last, float otherwise) {
  TRIBAR_LANES(i >= first && i <= last ? x.v[i] : otherwise);
}
TRIBAR_INLINE unsigned equal_lanes(const F16& a, const F16& b) {
  unsigned mask = 0;
  for (int i = 0; i < 16; ++i) mask |= (a.v[i] == b.v[i] ? 1u : 0u) << i;
  return mask;
}

TRIBAR_INLINE float lanes_sum(F16 x) {
  for (int half = 8; half >= 1; half /= 2)
    for (int i = 0; i < half; ++i) x.v[i] += x.v[i + half];
  return x.v[0];
}
TRIBAR_INLINE float lanes_max(F16 x) {
  for (int half = 8; half >= 1; half /= 2)
    for (int i = 0; i < half; ++i) x.v[i] = x.v[i] > x.v[i + half] ? x.v[i] : x.v[i + half];
  return x.v[0];
}

struct U64 {
  uint8_t v[64];
  static TRIBAR_INLINE U64 load(const uint8_t* p) {
    U64 r;
    std::memcpy(r.v, p, 64);
    return r;
  }
  TRIBAR_INLINE U64 low() const {
    U64 r;
    for (int i = 0; i < 64; ++i) r.v[i] = v[i] & 15;
    return r;
  }
  TRIBAR_INLINE U64 high() const {
    U64 r;
    for (int i = 0; i < 64; ++i) r.v[i] = v[i] >> 4;
    return r;
  }
};

struct I16 {
  int32_t v[16];
  static TRIBAR_INLINE I16 zero() { return {}; }
  TRIBAR_INLINE const I16& total() const { return *this; }
  TRIBAR_INLINE F16 to_float() const { TRIBAR_LANES(static_cast<float>(v[i])); }
};
TRIBAR_INLINE I16 join(const I16& high, const I16& low, int32_t offset) {
  I16 r;
  for (int i = 0; i < 16; ++i) r.v[i] = 128 * high.v[i] - offset + low.v[i];
  return r;
}
TRIBAR_INLINE I16 dot4(const I16& acc, const U64& w, const int8_t* q) {
  I16 r = acc;
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 4; ++j) r.v[i] += static_cast<int32_t>(w.v[4 * i + j]) * q[j];
  return r;
}

struct NibbleSum {
  I16 v;
  static TRIBAR_INLINE NibbleSum zero() { return {I16::zero()}; }
  TRIBAR_INLINE void add(const U64& w, const int8_t* q) { v = dot4(v, w, q); }
  TRIBAR_INLINE const I16& total() const { return v; }
};

struct B32 {
  uint16_t v[32];
  static TRIBAR_INLINE B32 load(const uint8_t* p) {
    B32 r;
    std::memcpy(r.v, p, 64);
    return r;
  }
};
TRIBAR_INLINE float float_from_bf16(uint16_t h) {
  const uint32_t bits = static_cast<uint32_t>(h) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
TRIBAR_INLINE F16 dot2(const F16& acc, const B32& w, const uint16_t* x) {
  const float x0 = float_from_bf16(x[0]), x1 = float_from_bf16(x[1]);
  TRIBAR_LANES((acc.v[i] + float_from_bf16(w.v[2 * i]) * x0) + float_from_bf16(w.v[2 * i + 1]) * x1);
}

// Adding 1.5 * 2^23 leaves |x| < 2^22 rounded to nearest even in the low bits of the mantissa.
TRIBAR_INLINE F16 round_even(const F16& x) { TRIBAR_LANES((x.v[i] + 12582912.0f) - 12582912.0f); }
TRIBAR_INLINE F16 times_power_of_two(const F16& x, const F16& n) {
  uint32_t bits[16];
  std::memcpy(bits, (n + F16::splat(12582912.0f)).v, 64);
  for (int i = 0; i < 16; ++i) bits[i] = (bits[i] + 127) << 23;
  F16 power;
  std::memcpy(power.v, bits, 64);
  return x * power;
}

#endif

// 2^(n + r) for a whole number n and |r| <= 1/2: a polynomial of least relative error (2e-7 in fp32) that is exact at 0.
TRIBAR_INLINE F16 exp2_parts(F16 n, F16 r) {
  F16 p = F16::splat(0.00132647273f);
  p = fma(p, r, F16::splat(0.00967151299f));
  p = fma(p, r, F16::splat(0.0555073358f));
  p = fma(p, r, F16::splat(0.240222424f));
  p = fma(p, r, F16::splat(0.693147004f));
  p = fma(p, r, F16::splat(1.0f));
  return times_power_of_two(p, n);
}

// 2^x and e^x for x <= 0 (softmax and sigmoid arguments), to about 2 units in the last place; about 1e-38 for all x below
// -126 and -87. NaN stays NaN: max gives its second operand then.
TRIBAR_INLINE F16 exp2_nonpositive(F16 x) {
  x = max(F16::splat(-126.0f), x);
  const F16 n = round_even(x);
  return exp2_parts(n, x - n);
}
TRIBAR_INLINE F16 exp_nonpositive(F16 x) {
  x = max(F16::splat(-87.0f), x);
  const F16 n = round_even(x * F16::splat(1.44269502f));
  const F16 r = fma(x, F16::splat(1.44269502f), F16::zero() - n);
  return exp2_parts(n, fma(x, F16::splat(1.92596299e-8f), r));  // the two constants add up to 1 / ln 2
}

}  // namespace tribar::TRIBAR_NAMESPACE
