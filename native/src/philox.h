// Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC'11), as
// tribar.core.sampling.philox specifies it.
#pragma once
#include <cstdint>

namespace tribar {

constexpr uint32_t kDrawPurpose = 0;

// The number in [0, 1), a multiple of 2^-24, that decides output token `output_index` of a sequence with this seed.
inline double philox_uniform(uint64_t seed, uint32_t output_index, uint32_t purpose = kDrawPurpose) {
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  uint32_t c0 = output_index, c1 = purpose, c2 = 0, c3 = 0;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = static_cast<uint64_t>(0xD2511F53) * c0, product1 = static_cast<uint64_t>(0xCD9E8D57) * c2;
    c0 = static_cast<uint32_t>(product1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(product1);
    c2 = static_cast<uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(product0);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return static_cast<double>(c0 >> 8) * 0x1p-24;
}

}  // namespace tribar
