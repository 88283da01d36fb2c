// Sampling as tribar.core.sampling.reference specifies it: the same token for the same logits, parameters and seed.
//
// The specification is fp64 over the whole vocabulary. This sampler gives its answers from far less work:
//   * top-k and min-p: only ids that can survive are collected (a floor on the logit), then the specification is applied
//     to them literally;
//   * no filter, or top-p alone: the weights of all ids are needed, but only their sum per run of 256 ids, in fp32. The
//     answer counts where it holds for every sum within the error bound; else the specification is applied literally to
//     all ids (`was_exact`: hardly ever on a peaked distribution, one draw in eight on a flat one of 49,152 ids).
// What is left of doubt is the last place of exp: about 1e-12 of the draws.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels.h"

namespace tribar {

struct Bias {
  int32_t id;
  double value;  // at or below -100 bans
};

// tribar.core.sampling.params.SamplingParams. Validated at the edge: ids lie in the vocabulary, bias is sorted by id.
struct SamplingSpec {
  double temperature = 1, top_p = 1, min_p = 0;
  int top_k = 0;
  double presence_penalty = 0, frequency_penalty = 0, repetition_penalty = 1;
  std::vector<Bias> bias;
  int min_tokens = 0;
  std::vector<int32_t> suppressed;
  uint64_t seed = 0;

  bool is_greedy() const { return temperature < 1e-5; }
  bool has_penalties() const { return presence_penalty != 0 || frequency_penalty != 0 || repetition_penalty != 1; }
};

struct TokenCount {
  int32_t id;
  int32_t n_output;  // 0: only in the prompt
};

// The ids of one sequence, for penalties. Sparse: one entry per distinct id, sorted by id.
class TokenCounts {
 public:
  // ids[0, n_prompt) are the prompt, the rest output. No allocation while there are at most `capacity` distinct ids.
  TokenCounts(const int32_t* ids, int n_ids, int n_prompt, int capacity);
  void add_output(int32_t id);
  const std::vector<TokenCount>& sorted() const { return counts_; }

 private:
  std::vector<TokenCount> counts_;
};

// What one row brings to one draw.
struct SamplerRow {
  const SamplingSpec* spec = nullptr;
  const TokenCounts* counts = nullptr;  // null is allowed where the spec has no penalties
  int output_index = 0;                 // tokens generated before this one
  const uint32_t* mask = nullptr;       // grammar bits (id % 32 of word id / 32); null allows all
  int n_mask_words = 0;                 // ids beyond are forbidden
};

enum class SampleStatus : int { Ok = 0, NonFinite = 1, NothingAllowed = 2 };

// The sentence for RowResult.error; "" for Ok.
const char* message_of(SampleStatus status);

struct Sampled {
  int id = -1;
  SampleStatus status = SampleStatus::Ok;
  bool was_exact = false;  // the fast bounds did not decide
};

struct Candidate {
  double scaled;  // score / temperature
  double weight;  // exp(scaled - largest scaled)
  int32_t id;
};

struct Override {
  int32_t id;
  double score;  // after bias and penalties
};

// Working memory of one thread, allocated once; untouched pages cost nothing.
struct SamplerScratch {
  explicit SamplerScratch(int vocab_size);

  int n_runs;
  std::unique_ptr<float[]> scores, maxima, sums, order;
  std::unique_ptr<Candidate[]> candidates;
  std::unique_ptr<Override[]> overrides;
};

// Draws one token from `logits` [vocab]. Bit-equal at every CPU level.
Sampled sample(const Kernels& kernels, const float* logits, int vocab, const SamplerRow& row, SamplerScratch& scratch);

// Raw log-probability of `token` and the k likeliest ids (k <= vocab), likeliest first, ties to the lowest id, in fp64.
SampleStatus token_logprobs(const Kernels& kernels, const float* logits, int vocab, int token, int k,
                            SamplerScratch& scratch, double* logprob, int32_t* top_ids, double* top_logprobs);

}  // namespace tribar
