// Plain C++: the sixteen lanes of simd.h are arrays, which the compiler turns into what vectors it has.
#pragma once
#include <cstdint>
#include <cstring>

#include "../../inline.h"

namespace tribar::portable {

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
  TRIBAR_INLINE void store_bf16(uint16_t* p) const {
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

}  // namespace tribar::portable
