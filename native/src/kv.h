// The layout of KV memory. One block holds 16 positions of one layer and one KV head, K then V.
//
//   bf16 K: at 2 * (16 * 2 * (d / 2) + 2 * t + d % 2): component d of position t   (a line: 16 positions x one pair of d)
//   bf16 V: at 2 * (head_dim * 2 * (t / 2) + 2 * d + t % 2)                         (a line: one pair of t x 16 d)
//   f32  K: at 4 * (16 * d + t)      f32 V: at 4 * (head_dim * t + d)
//   int8 K: at 64 * (d / 4) + 4 * t + d % 4           int8 V: at 4 * head_dim * (t / 4) + 4 * d + t % 4
//        a byte is q + 128, and 16 + 16 + 16 fp32 numbers lie behind both, one per position and KV head each: the scales
//        of K, the scales of V, the centres of K. K = centre + scale * q, because keys have channels that lie far to one
//        side; V = scale * q.
//
// Blocks of a layer lie one after the other: [layer][block][kv_head]. head_dim is a multiple of 16, at most 256.
// Memory starts out as zeros and only ever holds finite values, so a position that is masked may hold anything.
#pragma once
#include <cstddef>
#include <cstdint>

#include "inline.h"

namespace tribar {

constexpr int kBlock = 16;  // positions per block

enum class KvType : int { Bf16 = 0, F32 = 1, Int8 = 2 };

struct KvCache {
  KvType type = KvType::Bf16;
  int n_layers = 0, n_blocks = 0, n_kv_heads = 0, head_dim = 0;
  uint8_t* data = nullptr;

  TRIBAR_INLINE size_t half_bytes() const {  // K or V of one block and head, without scales
    size_t n = static_cast<size_t>(kBlock) * head_dim;
    return type == KvType::F32 ? 4 * n : type == KvType::Bf16 ? 2 * n : n;
  }
  TRIBAR_INLINE size_t head_bytes() const { return 2 * half_bytes() + (type == KvType::Int8 ? 3 * kBlock * sizeof(float) : 0); }
  TRIBAR_INLINE size_t block_bytes() const { return n_kv_heads * head_bytes(); }  // of one layer
  TRIBAR_INLINE uint8_t* head(int layer, int block, int kv_head) const {
    return data + (static_cast<size_t>(layer) * n_blocks + block) * block_bytes() + kv_head * head_bytes();
  }
};

}  // namespace tribar
