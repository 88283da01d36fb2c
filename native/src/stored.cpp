#include "stored.h"

#include "floats.h"

namespace tribar {
namespace {

float half_at(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return fp16_to_float(h);
}

uint32_t word_at(const uint8_t* p) {
  uint32_t word;
  std::memcpy(&word, p, 4);
  return word;
}

// 16 bytes: low nibbles are codes 0..15, high nibbles 16..31.
void read_nibbles(const uint8_t* bytes, uint8_t* q) {
  for (int i = 0; i < 16; ++i) {
    q[i] = bytes[i] & 15;
    q[16 + i] = bytes[i] >> 4;
  }
}

// Bit i of the word is the fifth bit of code i.
void add_fifth_bits(uint32_t bits, uint8_t* q) {
  for (int i = 0; i < 32; ++i) q[i] |= (bits >> i & 1) << 4;
}

// Eight 6-bit scales and minima in 12 bytes: 0-3 the scales 0-3 and, on top, two bits of scales 4-7; 4-7 the same for
// minima; 8-11 the low nibbles of scales (low half) and minima (high half) 4-7.
void read_k_scale(const uint8_t* bytes, int i, int& scale, int& minimum) {
  if (i < 4) {
    scale = bytes[i] & 63;
    minimum = bytes[4 + i] & 63;
  } else {
    scale = (bytes[4 + i] & 15) | bytes[i - 4] >> 6 << 4;
    minimum = bytes[4 + i] >> 4 | bytes[i] >> 6 << 4;
  }
}

// Q4_K and Q5_K: d, dmin (fp16), 12 bytes of scales, [32 bytes of fifth bits,] 128 bytes of nibbles.
void read_k_codes(const uint8_t* row, int group, bool has_fifth, Codes& out) {
  const uint8_t* block = row + static_cast<size_t>(group / 8) * (has_fifth ? 176 : 144);
  const int i = group % 8;
  int scale, minimum;
  read_k_scale(block + 4, i, scale, minimum);
  out.d = half_at(block) * static_cast<float>(scale);
  out.m = -(half_at(block + 2) * static_cast<float>(minimum));
  const uint8_t* nibbles = block + (has_fifth ? 48 : 16) + i / 2 * 32;
  for (int j = 0; j < 32; ++j) out.q[j] = i % 2 ? nibbles[j] >> 4 : nibbles[j] & 15;
  if (has_fifth)
    for (int j = 0; j < 32; ++j) out.q[j] |= (block[16 + j] >> i & 1) << 4;
}

// Q6_K: 128 bytes of low nibbles, 64 of top bit pairs, 16 signed scales of 16 weights each, d (fp16).
void read_q6_k(const uint8_t* row, int group, float* out) {
  const uint8_t* block = row + static_cast<size_t>(group / 8) * 210;
  const int half = group % 8 / 4, run = group % 4;
  const uint8_t* low = block + half * 64 + run % 2 * 32;
  const uint8_t* high = block + 128 + half * 32;
  const float d = half_at(block + 208);
  for (int part = 0; part < 2; ++part, low += 16, high += 16, out += 16) {
    const float scale = d * static_cast<float>(static_cast<int8_t>(block[192 + group % 8 * 2 + part]));
    for (int j = 0; j < 16; ++j) {
      const int code = (low[j] >> (run < 2 ? 0 : 4) & 15) | (high[j] >> 2 * run & 3) << 4;
      out[j] = scale * static_cast<float>(code - 32);
    }
  }
}

}  // namespace

StoredLayout layout_of(StoredType type) {
  switch (type) {
    case StoredType::F32: return {1, 4, 0};
    case StoredType::F16: return {1, 2, 0};
    case StoredType::BF16: return {1, 2, 0};
    case StoredType::Q4_0: return {32, 18, 16};
    case StoredType::Q4_1: return {32, 20, 16};
    case StoredType::Q5_0: return {32, 22, 32};
    case StoredType::Q5_1: return {32, 24, 32};
    case StoredType::Q8_0: return {32, 34, 256};
    case StoredType::Q4_K: return {256, 144, 16};
    case StoredType::Q5_K: return {256, 176, 32};
    case StoredType::Q6_K: return {256, 210, 0};
  }
  return {};
}

void read_codes(StoredType type, const uint8_t* row, int group, Codes& out) {
  if (type == StoredType::Q4_K || type == StoredType::Q5_K) return read_k_codes(row, group, type == StoredType::Q5_K, out);
  const uint8_t* block = row + static_cast<size_t>(group) * layout_of(type).n_bytes;
  out.d = half_at(block);
  switch (type) {
    case StoredType::Q4_0:
      out.m = -8 * out.d;
      return read_nibbles(block + 2, out.q);
    case StoredType::Q4_1:
      out.m = half_at(block + 2);
      return read_nibbles(block + 4, out.q);
    case StoredType::Q5_0:
      out.m = -16 * out.d;
      read_nibbles(block + 6, out.q);
      return add_fifth_bits(word_at(block + 2), out.q);
    case StoredType::Q5_1:
      out.m = half_at(block + 2);
      read_nibbles(block + 8, out.q);
      return add_fifth_bits(word_at(block + 4), out.q);
    default:  // Q8_0: signed codes, moved up by 128
      out.m = -128 * out.d;
      for (int i = 0; i < 32; ++i) out.q[i] = block[2 + i] ^ 0x80;
  }
}

void read_floats(const Stored& stored, int row, int group, float* out) {
  const uint8_t* data = stored.row(row);
  if (layout_of(stored.type).n_levels > 0) {
    Codes codes;
    read_codes(stored.type, data, group, codes);
    // The product has at most 21 significant bits: exact, so this is ggml's value whether it subtracts first or not.
    for (int i = 0; i < 32; ++i) out[i] = codes.d * static_cast<float>(codes.q[i]) + codes.m;
    return;
  }
  if (stored.type == StoredType::Q6_K) return read_q6_k(data, group, out);
  const int begin = group * 32, n = stored.k - begin < 32 ? stored.k - begin : 32;
  for (int i = 0; i < n; ++i) {
    if (stored.type == StoredType::F32) {
      out[i] = float_of(word_at(data + 4 * static_cast<size_t>(begin + i)));
    } else {
      uint16_t half;
      std::memcpy(&half, data + 2 * static_cast<size_t>(begin + i), 2);
      out[i] = stored.type == StoredType::F16 ? fp16_to_float(half) : bf16_to_float(half);
    }
  }
  for (int i = n; i < 32; ++i) out[i] = 0;
}

}  // namespace tribar
