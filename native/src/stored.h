// Rows of weights as model files store them, read 32 inputs (one group of a packed matrix) at a time.
//
// Layouts: ggml's ggml-common.h (block_q4_0 ... block_q6_K), as in src/tribar/runtime/formats/gguf_quants.py.
// Little-endian, as the file and every CPU that this builds for.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tribar {

// ggml's numbers.
enum class StoredType : int {
  F32 = 0, F16 = 1, Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q8_0 = 8, Q4_K = 12, Q5_K = 13, Q6_K = 14, BF16 = 30,
};

struct StoredLayout {
  int n_elements = 0;  // per block
  int n_bytes = 0;     // per block
  int n_levels = 0;    // codes are 0 ... n_levels - 1; 0 where 32 weights do not share one scale and minimum
};

// n_elements is 0 for a number that is not a StoredType.
StoredLayout layout_of(StoredType type);

// A matrix [n, k] in a file. k is a multiple of the block's n_elements.
struct Stored {
  StoredType type = StoredType::F32;
  int n = 0, k = 0;
  const uint8_t* data = nullptr;

  size_t row_bytes() const {
    const StoredLayout layout = layout_of(type);
    return static_cast<size_t>(k / layout.n_elements) * layout.n_bytes;
  }
  const uint8_t* row(int i) const { return data + i * row_bytes(); }
};

// 32 weights: weight = d * q + m.
struct Codes {
  uint8_t q[32];
  float d, m;
};

// Group `group` of a row whose type has n_levels > 0. Exact: d and m are the file's own numbers, or their fp32
// products (K-quants).
void read_codes(StoredType type, const uint8_t* row, int group, Codes& out);

// The same 32 weights in fp32, equal to ggml's dequantisation for finite scales, of any type; zeros beyond k.
void read_floats(const Stored& stored, int row, int group, float* out);

}  // namespace tribar
