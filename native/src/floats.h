// fp16 and bf16 in software, for packing. Kernels convert with the CPU's own instructions.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

namespace tribar {

inline uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}

inline float float_of(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

inline float fp16_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16, rest = h & 0x7fff;
  if (rest >= 0x7c00) return float_of(sign | 0x7f800000 | (rest & 0x3ff) << 13);
  const float magnitude = float_of(rest << 13) * 0x1p112f;  // moves the exponent bias from 15 to 127
  return float_of(sign | bits_of(magnitude));
}

// Nearest, ties to even; beyond 65519 infinity.
inline uint16_t fp16_from_float(float x) {
  const uint32_t bits = bits_of(x), rest = bits & 0x7fffffff;
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  if (rest > 0x7f800000) return sign | 0x7e00;
  if (rest >= 0x477ff000) return sign | 0x7c00;
  if (rest < 0x38800000) return sign | static_cast<uint16_t>(std::nearbyint(float_of(rest) * 0x1p24f));  // subnormal
  return sign | static_cast<uint16_t>((rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13);
}

// The largest fp16 that is not above x.
inline uint16_t fp16_below(float x) {
  const uint16_t h = fp16_from_float(x);
  if (!(fp16_to_float(h) > x)) return h;
  if (h == 0) return 0x8001;
  return h & 0x8000 ? h + 1 : h - 1;
}

// The smallest fp16 that is not below x.
inline uint16_t fp16_above(float x) { return fp16_below(-x) ^ 0x8000; }

inline float bf16_to_float(uint16_t h) { return float_of(static_cast<uint32_t>(h) << 16); }

// Nearest, ties to even; NaN stays NaN.
inline uint16_t bf16_from_float(float x) {
  const uint32_t bits = bits_of(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace tribar
