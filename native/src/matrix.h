// Weight matrices as the kernels read them, and the activations that meet them.
//
// A matrix [n, k] (out, in) is cut into *strips* of 16 output columns. A strip is read from front to back, one group of
// 32 inputs after the other, so one strip is one sequential stream for the prefetcher.
//
//   Int4 group (320 bytes): 256 bytes of nibbles | 16 scales d (fp16) | 16 minima m (fp16)      weight = d * q + m
//        byte 64*i + 4*c + j holds column c: low nibble input 8*i + j, high nibble input 8*i + 4 + j   (i, j in 0..3)
//   Int8 group (576 bytes): 512 bytes u8         | 16 scales d (fp16) | 16 minima m (fp16)      weight = d * q + m
//        byte 64*i + 4*c + j holds column c, input 4*i + j                                        (i in 0..7)
//   Bf16 group (1024 bytes): pairs of inputs: bf16 at 2*(32*i + 2*c + j) holds column c, input 2*i + j  (i in 0..15)
//   F32 group (2048 bytes): float at 16*i + c holds column c, input i                             (i in 0..31)
//
// Columns beyond n (padding to 16) are zero. k is a multiple of 32 (padded with zero weights where it is not).
//
// Reduction order (law 15): every output is one sum over the groups in increasing order, started at zero. Within an
// Int4/Int8 group the products are summed exactly in int32, then  acc = fma(float(sum), d * a_scale, acc)  and
// acc = fma(m, a_sum, acc).  For Bf16 and F32 the order within a group is fixed per CPU level. No kernel may choose
// another order by the number of rows, so a row's result never depends on its company.
#pragma once
#include <cstddef>
#include <cstdint>

#include "inline.h"

namespace tribar {

constexpr int kStrip = 16;  // output columns per strip
constexpr int kGroup = 32;  // inputs per group

enum class WeightType : int { Int4 = 0, Int8 = 1, Bf16 = 2, F32 = 3 };

constexpr TRIBAR_INLINE size_t group_bytes(WeightType type) {
  switch (type) {
    case WeightType::Int4: return 320;
    case WeightType::Int8: return 576;
    case WeightType::Bf16: return 1024;
    default: return 2048;
  }
}

struct Matrix {
  WeightType type = WeightType::F32;
  int n = 0;  // outputs, as the model has them
  int k = 0;  // inputs, padded to a multiple of kGroup
  const uint8_t* data = nullptr;

  TRIBAR_INLINE int n_strips() const { return (n + kStrip - 1) / kStrip; }
  TRIBAR_INLINE size_t strip_bytes() const { return static_cast<size_t>(k / kGroup) * group_bytes(type); }
  TRIBAR_INLINE const uint8_t* strip(int s) const { return data + s * strip_bytes(); }
};

// Rows of activations, prepared once per layer input. Which pointers are set depends on the weights they will meet:
// Int4 and Int8 need q, scale and sum; Bf16 needs bf16; F32 needs f32. Int8 weights take activations of 15 bits too, in
// two planes: the second sum of products of a group is added to acc after the first.
struct Activations {
  int m = 0;  // rows
  int k = 0;  // padded inputs
  const int8_t* q = nullptr;         // [m][k], in [-127, 127]
  const int8_t* q_low = nullptr;     // null, or [m][k], in [-64, 64]
  const float* scale = nullptr;      // [m][k / kGroup]: x ~ scale * (q + q_low / 128)
  const float* sum = nullptr;        // [m][k / kGroup]: the sum over the group of what x is taken for
  const uint16_t* bf16 = nullptr;    // [m][k]
  const float* f32 = nullptr;        // [m][k]
};

// What happens to the 16 finished columns of a row.
enum class Epilogue : int {
  Store,      // out = acc
  Add,        // out += acc                       (residual)
  GatedSilu,  // strips come in pairs (gate, up): out[., s / 2] = silu(gate) * up
  GatedGelu,  // the same with the tanh approximation of gelu
};

// Gated epilogues need n to be a multiple of 32: gate and up are padded to 16 columns each before they are interleaved.
struct Output {
  float* data = nullptr;        // [m][stride]; columns [0, n), or [0, n / 2) where gated, are written and no others
  int stride = 0;
  const float* bias = nullptr;  // [n] or null, added to acc first
  Epilogue epilogue = Epilogue::Store;
};

}  // namespace tribar
