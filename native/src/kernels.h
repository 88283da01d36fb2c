// The kernels of one CPU level, as a table of functions. src/kernels/level.cpp is compiled once per level with that
// level's flags; kernels_for() picks one at run time.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "kv.h"
#include "matrix.h"

namespace tribar {

// One query token's attention over one KV head: the query heads that share it.
struct AttentionTask {
  int layer = 0, kv_head = 0;
  const int32_t* block_table = nullptr;
  int n_queries = 0;       // consecutive positions of one row, at most kQueryTile
  int position = 0;        // of the first query: query i sees [max(0, position + i - window + 1), position + i]
  int window = 0;          // 0 is full attention
  const float* q = nullptr;  // query i, head h at q + i * q_stride + h * head_dim
  int q_stride = 0;
  int n_heads = 0;         // query heads per KV head
  float scale = 1, softcap = 0;
  float* out = nullptr;    // query i, head h at out + i * out_stride + h * head_dim
  int out_stride = 0;
};

// A partial softmax over a span of positions; partials of one query merge in increasing span order.
constexpr int kSpan = 512;       // positions per span, counted from position 0
constexpr int kRun = 256;        // ids per run of the sampler's passes over the vocabulary
constexpr int kQueryTile = 16;   // queries per task at most

struct Kernels {
  const char* level;

  // Columns of strips [strip_begin, strip_end) for all rows. Gated epilogues need an even strip_begin and strip_end.
  void (*gemm)(const Matrix&, const Activations&, int strip_begin, int strip_end, const Output&);

  // n * 12 * 64 multiplications and additions of integers that no memory holds up, for measuring the roof of gemm.
  int32_t (*multiply_registers)(int64_t n);

  // Row-wise preparation; k is padded with zeros up to k_padded.
  // norm: x * rsqrt(mean(x^2) + eps) * weight (weight null: no scaling). Any of the outputs may be null.
  void (*rms_norm)(const float* x, const float* weight, int k, float eps, float* out);
  // quantise: Activations' q, q_low, scale and sum of one row; q_low null: 8 bits.
  void (*quantise)(const float* x, int k, int k_padded, int8_t* q, int8_t* q_low, float* scale, float* sum);
  void (*to_bf16)(const float* x, int k, int k_padded, uint16_t* out);

  // Rotates n_heads heads of one token in place. cos_sin: [rotary_dim / 2] pairs (cos, sin). Halves (i, i + rotary/2),
  // or pairs (2i, 2i + 1) where interleaved.
  void (*rope)(float* x, int n_heads, int head_dim, int rotary_dim, const float* cos_sin, bool interleaved);

  // Writes K and V of one token into its slot.
  void (*kv_write)(const KvCache&, int layer, int block, int slot, const float* k, const float* v);

  // Scores and values over positions [span * kSpan, (span + 1) * kSpan) of one task: for each query i and head h the
  // running maximum (in units of ln 2), sum and unnormalised output at index (i * n_heads + h) of max, sum, and acc [.][head_dim].
  void (*attend_span)(const KvCache&, const AttentionTask&, int span, float* max, float* sum, float* acc);

  // Writes task.out from the partials of spans in increasing order: max, sum [n_spans][n_queries * n_heads], acc [...][
  // head_dim]. Spans that no query of the task sees may be among them or not.
  void (*merge_spans)(const AttentionTask&, int head_dim, int n_spans, const float* max, const float* sum,
                      const float* acc);

  // Index of the largest, ties to the lowest; -1 where x holds NaN or +inf.
  int (*argmax)(const float* x, int n);

  // Passes of the sampler over a row of logits, in runs of kRun ids: out[ceil(n / kRun)].
  // The largest of each run; false where x holds NaN or +inf.
  bool (*run_maxima)(const float* x, int n, float* out);
  // The sum over each run of exp((x - largest) * inverse_temperature), x <= largest; see sampler.cpp for its error.
  void (*run_weights)(const float* x, int n, float largest, float inverse_temperature, float* out);
  // The same over all of x in fp64, to about n units in the last place and equal in every bit at every level.
  double (*exp_sum)(const float* x, int n, double largest, double inverse_temperature);
};

// The levels of this CPU, best first: avx512, avx2, portable; or neon, portable.
std::vector<std::string> cpu_levels();

// The kernels of a level. Empty: what the variable TRIBAR_CPU_LEVEL says, or the best this CPU has. Throws
// std::invalid_argument for a level that is unknown or more than this CPU has.
const Kernels& kernels_for(const std::string& wanted_level);

}  // namespace tribar
