// From the weights of a file to the packed matrices of matrix.h.
//
// What packing keeps and what it rounds:
//
//   stored           packed  rule
//   Q4_0 Q4_1        Int4    exact
//   Q4_K             Int4    codes exact; the two fp32 products d and m of a group are rounded to fp16: 2^-11 of each
//                            (2^-25 absolute where subnormal), so a weight moves by at most 2^-11 (15 |d| + |m|),
//                            1/60 of the file's own half step when m = -8 d
//   Q5_0 Q5_1 Q8_0   Int8    exact (and Q4_0, Q4_1 where int8 is asked for)
//   Q5_K             Int8    codes exact; d and m rounded as for Q4_K (and Q4_K where int8 is asked for)
//   anything else    Int4/8  the range [min, max] of a group of 32 is cut into 15 (255) steps: m is min rounded down
//                            to fp16, d the step rounded up, q the nearest code: the error is at most d / 2
//   anything         Bf16    nearest, ties to even
//   anything         F32     the file's fp32 value
//
//   Q6_K -> Int8 adds a quarter of the file's own RMS error where the two scales of a group are unlike (less otherwise);
//   the K-quants' rounding adds 1/100 of it (tests/unit/runtime/native/test_pack.py measures both).
//
// A group whose constants do not fit fp16 (|d| or |m| beyond 65504, infinite or NaN) is a PackFault for Int4 and Int8;
// Bf16 and F32 carry such weights on, and the rows that meet them fail.
#pragma once
#include <vector>

#include "matrix.h"
#include "stored.h"

namespace tribar {

// `--weights`. Auto: Int4 for 4-bit types, Int8 for 5 to 8 bits, Bf16 for BF16 and F16 (F16 loses 3 bits of 11 and
// keeps the size of the file; F32 would keep the bits and double the bytes that every step reads), F32 for F32.
enum class WeightsRule : int { Auto = 0, Int4 = 1, Int8 = 2, Bf16 = 3, F32 = 4 };

WeightType packed_type(StoredType stored, WeightsRule rule);

// One packed matrix to be. All parts have the same k; they may be stored in different types.
struct PackSpec {
  WeightType type = WeightType::F32;
  std::vector<Stored> parts;  // not empty; their rows follow each other as columns,
  bool is_gated = false;      // or two parts (gate, up) of the same n take turns, strip by strip

  int n() const;  // columns: a gated matrix counts the padding of both parts
  int k() const;  // padded to a multiple of kGroup
  Matrix matrix(const uint8_t* data) const { return {type, n(), k(), data}; }
  size_t n_bytes() const;
};

// The matrices for parts that read the same input (q, k, v; or gate and up): neighbours of one packed type share a
// matrix. Gate and up always share one, in the wider of their types.
std::vector<PackSpec> plan_matrices(const std::vector<Stored>& parts, WeightsRule rule, bool is_gated);

struct PackFault {
  int part = -1;  // none
  int row = 0;    // of the part
  int input = 0;  // first of the 32 inputs

  explicit operator bool() const { return part >= 0; }
};

// Writes strips [strip_begin, strip_end) of the matrix at `data` (n_bytes() long; 64-byte alignment is the caller's).
// Threads may write disjoint strips at once. Returns the first group that does not fit; the rest is written all the same.
PackFault pack_strips(const PackSpec& spec, int strip_begin, int strip_end, uint8_t* data);

// Column `column` of a packed matrix, inputs [0, k): what the kernels multiply by, in fp32 (one rounding, of d * q + m).
// The embedding row of an id.
void read_column(const Matrix& matrix, int column, int k, float* out);

}  // namespace tribar
