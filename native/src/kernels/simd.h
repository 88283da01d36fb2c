// Sixteen lanes of float and of int32 for each CPU level, so that every kernel is written once.
//
// The including file is compiled once per level with TRIBAR_LEVEL_AVX512, _AVX2, _NEON or _PORTABLE defined, into a
// namespace of its own. Within a level the operations are exact IEEE single operations in a fixed order:
// -ffp-contract=off keeps the compiler from fusing what is not written as fma().
//
// These files are compiled with instructions that the CPU may lack, so nothing in them may end up as a shared inline
// function that the linker could pick for everybody: no standard library templates, and inline code only by
// TRIBAR_INLINE or in an unnamed namespace. native/tests looks for such functions in every level's object.
//
// simd/<level>.h has for its level:
//
//   kTileRows, kQueryRows, kScoreBlocks, kValueStrips: accumulators that fit the registers: rows of a GEMM tile; rows
//       of an attention tile, and for these the blocks scored together and the 16-column strips of V added together
//   F16   16 floats: zero, splat, load, load_fp16, store, + - * /, fma, and
//     store_int8           whole numbers of at most 127 in magnitude
//     store_bf16           nearest, ties to even; NaN stays NaN
//     store_bf16_spread    at p[0], p[2], ...; what lies between is not even read: another thread may be writing it
//     max, min             give the second operand where either is NaN
//     where_negative       goes by the sign bit
//     keep_lanes           replaces what is outside [first, last]
//     equal_lanes          a bit set
//     lanes_sum, lanes_max all 16 lanes, halves onto halves; lanes_max is meaningless where one is NaN
//     round_even           nearest whole number, ties to even, of |x| < 2^22
//     times_power_of_two   x * 2^n for a whole number n in [-126, 127]
//   U64   64 unsigned bytes, 16 lanes of 4 inputs: load; low and high nibbles
//   I16   16 exact int32 sums: zero, total, to_float; join: 128 * high + low - offset
//     dot4                 acc + the dot products of 4 unsigned bytes per lane with the same 4 signed bytes
//   NibbleSum  sums of such products where the unsigned bytes are at most 15, for at most 8 times 4 inputs: add, total
//   B32   16 lanes of 2 bf16 each: load; dot2: acc + the dot products of the 2 with the same 2 bf16
#pragma once

#if defined(TRIBAR_LEVEL_AVX512)
#define TRIBAR_NAMESPACE avx512
#include "simd/avx512.h"
#elif defined(TRIBAR_LEVEL_AVX2)
#define TRIBAR_NAMESPACE avx2
#include "simd/avx2.h"
#elif defined(TRIBAR_LEVEL_NEON)
#define TRIBAR_NAMESPACE neon
#include "simd/neon.h"
#else
#define TRIBAR_NAMESPACE portable
#include "simd/portable.h"
#endif
// A loop over registers: only unrolled does it keep its array in them.
#ifdef __clang__
#define TRIBAR_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TRIBAR_UNROLL _Pragma("GCC unroll 16")
#endif

namespace tribar::TRIBAR_NAMESPACE {

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
