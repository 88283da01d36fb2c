// One engine step on the CPU: the forward pass of a flat batch and the drawing of its tokens.
//
// A batch is cut into micro-batches of at most kMicroBatch tokens, which pass through all layers one after the other:
// the memory of a step is bounded and stays in the caches, and by law 15 the cut changes no bit of any result.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels.h"
#include "kv.h"
#include "model.h"
#include "pool.h"

namespace tribar {

constexpr int kMicroBatch = 512;

// A run of consecutive positions of one row.
struct Segment {
  const int32_t* ids = nullptr;          // ids of these positions
  const int32_t* block_table = nullptr;  // of the row, from position 0
  int position = 0;                      // of the first id
  int n_tokens = 0;
};

// A position whose logits are wanted. Lists of them are sorted by (segment, token).
struct Wanted {
  int segment = 0;
  int token = 0;  // within the segment
};

class Step {
 public:
  // Reserves all memory a step needs; a step allocates nothing.
  Step(const Model& model, const KvCache& kv, const Kernels& kernels, ThreadPool& pool);

  // Computes all segments and calls take(readout, hidden, logits, thread) for each wanted position, concurrently.
  // hidden is the normed last hidden state [hidden], logits [vocab]; both are valid during the call only.
  template <class Take>
  void run(const std::vector<Segment>& segments, const std::vector<Wanted>& wanted, const Take& take) {
    run_erased(segments, wanted, [](const void* context, int readout, const float* hidden, float* logits, int thread) {
      (*static_cast<const Take*>(context))(readout, hidden, logits, thread);
    }, &take);
  }

 private:
  using TakeFunction = void (*)(const void*, int, const float*, float*, int);

  // One token of the micro-batch.
  struct Token {
    int32_t id = 0;
    int position = 0;
    const int32_t* block_table = nullptr;
  };
  // Consecutive positions of one row within the micro-batch, at most kQueryTile.
  struct QueryRun {
    int first_token = 0;
    int n_tokens = 0;
    int n_spans = 0;
  };
  // A quantised or converted copy of activations, in the forms that the weights at hand need.
  struct Prepared {
    std::vector<int8_t> q, q_low;
    std::vector<float> scale, sum, f32;
    std::vector<uint16_t> bf16;
  };

  // Partial softmaxes of n query heads over several spans: max and sum [spans][n], acc [spans][n][head_dim].
  struct Partials {
    float *max, *sum, *acc;
    int n, head_dim;

    float* max_of(int span) const { return max + span * n; }
    float* sum_of(int span) const { return sum + span * n; }
    float* acc_of(int span) const { return acc + static_cast<size_t>(span) * n * head_dim; }
  };

  void run_erased(const std::vector<Segment>&, const std::vector<Wanted>&, TakeFunction, const void* context);
  void forward();
  void embed();
  void layer(int index);
  void attention(int index);
  AttentionTask task_of(int index, const QueryRun& run, int kv_head);
  Partials partials_at(float* base, int n, int n_spans) const;
  void project(const Linear& linear, const Prepared& input, int m, float* out, int stride, Epilogue epilogue);
  void prepare_row(const Linear& linear, const float* x, int row, int k, Prepared& out) const;
  void norm_prepare(const std::vector<float>& weight, const Linear& next);
  void prepare(const Linear& next, const float* x, int k, int stride);
  void add_residual(const Linear& linear, const std::vector<float>& post_norm);
  void read_out(int first, int first_in_batch, TakeFunction, const void* context);
  size_t partial_floats() const;
  size_t thread_partial_floats() const;

  const Model& model_;
  const KvCache& kv_;
  const Kernels& kernels_;
  ThreadPool& pool_;
  int logits_rows_, max_spans_;

  std::vector<Token> tokens_;
  std::vector<QueryRun> runs_;
  std::vector<int> readout_tokens_;  // token of each readout of this micro-batch
  std::vector<float> x_, qkv_, wide_, normed_, temporary_;  // residual stream and what hangs off it
  std::vector<float> readout_hidden_, logits_;
  std::vector<float> partials_;
  std::vector<std::vector<float>> norm_scratch_;
  Prepared prepared_, readout_prepared_;
};

}  // namespace tribar
