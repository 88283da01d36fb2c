// NEON with the dot products of Armv8.2 (SDOT): the sixteen lanes of simd.h are four registers.
//
// Neither USDOT nor BFMMLA is asked for, so every CPU with FEAT_DotProd has this level.
#pragma once
#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#include "../../inline.h"

namespace tribar::neon {

// Four rows times four registers of sums leave room for a line of weights; the float sums of the tile are spilled
// once a group of 32 inputs.
constexpr int kTileRows = 4, kQueryRows = 4, kScoreBlocks = 1, kValueStrips = 1;

// One expression for each of the four registers.
#define TRIBAR_QUARTERS(expression) \
  F16 r;                            \
  for (int i = 0; i < 4; ++i) r.v[i] = (expression); \
  return r

struct F16 {
  float32x4_t v[4];
  static TRIBAR_INLINE F16 splat(float x) { TRIBAR_QUARTERS(vdupq_n_f32(x)); }
  static TRIBAR_INLINE F16 zero() { return splat(0.0f); }
  static TRIBAR_INLINE F16 load(const float* p) { TRIBAR_QUARTERS(vld1q_f32(p + 4 * i)); }
  static TRIBAR_INLINE F16 load_fp16(const uint8_t* p) {
    TRIBAR_QUARTERS(vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p + 8 * i))));
  }
  TRIBAR_INLINE void store(float* p) const {
    for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, v[i]);
  }
  TRIBAR_INLINE void store_int8(int8_t* p) const {
    const int16x8_t low = vcombine_s16(vmovn_s32(vcvtq_s32_f32(v[0])), vmovn_s32(vcvtq_s32_f32(v[1])));
    const int16x8_t high = vcombine_s16(vmovn_s32(vcvtq_s32_f32(v[2])), vmovn_s32(vcvtq_s32_f32(v[3])));
    vst1q_s8(p, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
  }
  static TRIBAR_INLINE uint16x4_t bf16_quarter(float32x4_t x) {
    const uint32x4_t bits = vreinterpretq_u32_f32(x), high = vshrq_n_u32(bits, 16);
    const uint32x4_t sum = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), vandq_u32(high, vdupq_n_u32(1)));
    const uint32x4_t quiet_nan = vorrq_u32(high, vdupq_n_u32(64));
    return vmovn_u32(vbslq_u32(vceqq_f32(x, x), vshrq_n_u32(sum, 16), quiet_nan));
  }
  TRIBAR_INLINE void store_bf16(uint16_t* p) const {
    for (int i = 0; i < 4; ++i) vst1_u16(p + 4 * i, bf16_quarter(v[i]));
  }
  TRIBAR_INLINE void store_bf16_spread(uint16_t* p) const {
    uint16_t values[16];
    store_bf16(values);
    for (int i = 0; i < 16; ++i) p[2 * i] = values[i];
  }
};
// FMAX and FMIN would give NaN where either operand is NaN, so max and min compare and select.
TRIBAR_INLINE float32x4_t max_quarter(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }

TRIBAR_INLINE F16 operator+(F16 a, F16 b) { TRIBAR_QUARTERS(vaddq_f32(a.v[i], b.v[i])); }
TRIBAR_INLINE F16 operator-(F16 a, F16 b) { TRIBAR_QUARTERS(vsubq_f32(a.v[i], b.v[i])); }
TRIBAR_INLINE F16 operator*(F16 a, F16 b) { TRIBAR_QUARTERS(vmulq_f32(a.v[i], b.v[i])); }
TRIBAR_INLINE F16 operator/(F16 a, F16 b) { TRIBAR_QUARTERS(vdivq_f32(a.v[i], b.v[i])); }
TRIBAR_INLINE F16 fma(F16 a, F16 b, F16 c) { TRIBAR_QUARTERS(vfmaq_f32(c.v[i], a.v[i], b.v[i])); }
TRIBAR_INLINE F16 max(F16 a, F16 b) { TRIBAR_QUARTERS(max_quarter(a.v[i], b.v[i])); }
TRIBAR_INLINE F16 min(F16 a, F16 b) { TRIBAR_QUARTERS(vbslq_f32(vcltq_f32(a.v[i], b.v[i]), a.v[i], b.v[i])); }
TRIBAR_INLINE F16 where_negative(F16 x, F16 then, F16 otherwise) {
  TRIBAR_QUARTERS(vbslq_f32(vcltzq_s32(vreinterpretq_s32_f32(x.v[i])), then.v[i], otherwise.v[i]));
}
TRIBAR_INLINE F16 keep_lanes(F16 x, int first, int last, float otherwise) {
  const int32x4_t low = vcombine_s32(vcreate_s32(0x100000000u), vcreate_s32(0x300000002u));  // 0, 1, 2, 3
  const int32x4_t begin = vdupq_n_s32(first), end = vdupq_n_s32(last);
  const float32x4_t other = vdupq_n_f32(otherwise);
  F16 r;
  for (int i = 0; i < 4; ++i) {
    const int32x4_t lane = vaddq_s32(low, vdupq_n_s32(4 * i));
    r.v[i] = vbslq_f32(vandq_u32(vcgeq_s32(lane, begin), vcleq_s32(lane, end)), x.v[i], other);
  }
  return r;
}
TRIBAR_INLINE unsigned equal_lanes(F16 a, F16 b) {
  const uint32x4_t bits = vcombine_u32(vcreate_u32(0x200000001u), vcreate_u32(0x800000004u));  // 1, 2, 4, 8
  unsigned mask = 0;
  for (int i = 0; i < 4; ++i) mask |= vaddvq_u32(vandq_u32(vceqq_f32(a.v[i], b.v[i]), bits)) << 4 * i;
  return mask;
}

TRIBAR_INLINE float lanes_sum(F16 x) {
  const float32x4_t four = vaddq_f32(vaddq_f32(x.v[0], x.v[2]), vaddq_f32(x.v[1], x.v[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
TRIBAR_INLINE float lanes_max(F16 x) {
  const float32x4_t four = max_quarter(max_quarter(x.v[0], x.v[2]), max_quarter(x.v[1], x.v[3]));
  const float32x4_t two = max_quarter(four, vextq_f32(four, four, 2));
  return vgetq_lane_f32(max_quarter(two, vextq_f32(two, two, 1)), 0);
}

struct U64 {
  uint8x16_t v[4];
  static TRIBAR_INLINE U64 load(const uint8_t* p) {
    U64 r;
    for (int i = 0; i < 4; ++i) r.v[i] = vld1q_u8(p + 16 * i);
    return r;
  }
  TRIBAR_INLINE U64 low() const {
    U64 r;
    for (int i = 0; i < 4; ++i) r.v[i] = vandq_u8(v[i], vdupq_n_u8(15));
    return r;
  }
  TRIBAR_INLINE U64 high() const {
    U64 r;
    for (int i = 0; i < 4; ++i) r.v[i] = vshrq_n_u8(v[i], 4);
    return r;
  }
};

// The sums of 16 lanes, each too large by `excess`, which is the same number four times.
struct I16 {
  int32x4_t v[4];
  int32x4_t excess;
  static TRIBAR_INLINE I16 zero() {
    const int32x4_t none = vdupq_n_s32(0);
    return {{none, none, none, none}, none};
  }
  TRIBAR_INLINE I16 total() const {
    I16 r = zero();
    for (int i = 0; i < 4; ++i) r.v[i] = vsubq_s32(v[i], excess);
    return r;
  }
  TRIBAR_INLINE F16 to_float() const { TRIBAR_QUARTERS(vcvtq_f32_s32(vsubq_s32(v[i], excess))); }
};
TRIBAR_INLINE I16 join(const I16& high, const I16& low, int32_t offset) {
  const I16 upper = high.total(), lower = low.total();
  I16 r = I16::zero();
  for (int i = 0; i < 4; ++i)
    r.v[i] = vsubq_s32(vaddq_s32(vshlq_n_s32(upper.v[i], 7), lower.v[i]), vdupq_n_s32(offset));
  return r;
}
TRIBAR_INLINE int8x16_t four_bytes(const int8_t* q) {
  int32_t four;
  std::memcpy(&four, q, 4);
  return vreinterpretq_s8_s32(vdupq_n_s32(four));
}
// SDOT takes signed bytes only: w = (w ^ 128, signed) + 128, so the sums fall short by 128 times the sum of q. That is
// the same for all lanes: one more SDOT, with -128, keeps it aside.
TRIBAR_INLINE I16 dot4(I16 acc, const U64& w, const int8_t* q) {
  const int8x16_t x = four_bytes(q);
  for (int i = 0; i < 4; ++i)
    acc.v[i] = vdotq_s32(acc.v[i], vreinterpretq_s8_u8(veorq_u8(w.v[i], vdupq_n_u8(128))), x);
  acc.excess = vdotq_s32(acc.excess, vdupq_n_s8(-128), x);
  return acc;
}

// Nibbles are signed bytes as they are.
struct NibbleSum {
  int32x4_t v[4];
  static TRIBAR_INLINE NibbleSum zero() {
    const int32x4_t none = vdupq_n_s32(0);
    return {{none, none, none, none}};
  }
  TRIBAR_INLINE void add(const U64& w, const int8_t* q) {
    const int8x16_t x = four_bytes(q);
    for (int i = 0; i < 4; ++i) v[i] = vdotq_s32(v[i], vreinterpretq_s8_u8(w.v[i]), x);
  }
  TRIBAR_INLINE I16 total() const { return {{v[0], v[1], v[2], v[3]}, vdupq_n_s32(0)}; }
};

struct B32 {
  uint32x4_t v[4];
  static TRIBAR_INLINE B32 load(const uint8_t* p) {
    B32 r;
    for (int i = 0; i < 4; ++i) r.v[i] = vreinterpretq_u32_u8(vld1q_u8(p + 16 * i));
    return r;
  }
};
TRIBAR_INLINE F16 dot2(F16 acc, const B32& w, const uint16_t* x) {
  const float32x4_t x0 = vreinterpretq_f32_u32(vdupq_n_u32(static_cast<uint32_t>(x[0]) << 16));
  const float32x4_t x1 = vreinterpretq_f32_u32(vdupq_n_u32(static_cast<uint32_t>(x[1]) << 16));
  for (int i = 0; i < 4; ++i) {
    const float32x4_t even = vreinterpretq_f32_u32(vshlq_n_u32(w.v[i], 16));
    const float32x4_t odd = vreinterpretq_f32_u32(vandq_u32(w.v[i], vdupq_n_u32(0xffff0000u)));
    acc.v[i] = vfmaq_f32(vfmaq_f32(acc.v[i], even, x0), odd, x1);
  }
  return acc;
}

TRIBAR_INLINE F16 round_even(F16 x) { TRIBAR_QUARTERS(vrndnq_f32(x.v[i])); }
TRIBAR_INLINE float32x4_t power_quarter(float32x4_t n) {
  return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23));
}
TRIBAR_INLINE F16 times_power_of_two(F16 x, F16 n) { TRIBAR_QUARTERS(vmulq_f32(x.v[i], power_quarter(n.v[i]))); }

}  // namespace tribar::neon
