// The native runner: weights, KV memory, rows, and one call per step. Threads: one caller, and the pool behind it.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels.h"
#include "kv.h"
#include "model.h"
#include "pack.h"
#include "pool.h"
#include "sampler.h"
#include "step.h"

namespace tribar {

// Zeroed memory straight from the system, in huge pages where it gives them (weights are read from end to end in every
// step: with 4 KB pages a third of that time went into translating addresses). Pages cost nothing until they are
// touched. Throws std::bad_alloc.
class Memory {
 public:
  Memory() = default;
  explicit Memory(size_t n_bytes);
  ~Memory();
  Memory(Memory&& other) noexcept : data_(other.data_), n_bytes_(other.n_bytes_) { other.data_ = nullptr; }
  Memory& operator=(Memory&& other) noexcept;
  uint8_t* data() const { return data_; }
  size_t n_bytes() const { return n_bytes_; }

 private:
  uint8_t* data_ = nullptr;
  size_t n_bytes_ = 0;
};

// Packed matrices one after the other, each at a multiple of 64 bytes, in as few pieces of memory as possible.
class Arena {
 public:
  uint8_t* allocate(size_t n_bytes);

 private:
  std::vector<Memory> pieces_;
  size_t n_used_ = 0;  // of the last piece
};

// What a row wants of its steps besides tokens; -1 is nothing.
struct RowWants {
  int n_logprobs = -1;
  int n_prompt_logprobs = -1;
  bool hidden = false;
};

struct Scored {
  int work = 0;  // entry of the step's work
  int32_t id = 0;
  double logprob = 0;
  size_t first_top = 0;  // of the outcome's top_ids and top_logprobs
  int n_top = 0;
};

// The outcome of one step, in the order of its work. Valid until the next step, which reuses its memory: a step
// allocates only where it has more to tell than any before it, and nothing for tokens alone.
struct StepOutcome {
  std::vector<int32_t> tokens;        // -1: the row drew none
  std::vector<int> statuses;          // SampleStatus
  std::vector<Scored> token_scores;   // of rows that want log-probabilities
  std::vector<Scored> prompt_scores;  // in prompt order within a row
  std::vector<int32_t> top_ids;       // of all scores
  std::vector<double> top_logprobs;
  std::vector<int> hidden_works;      // entries of the work whose normed last hidden states are
  std::vector<float> hidden;          // [hidden_works][hidden]

  void clear(size_t n_work);
  Scored scored(int work, int32_t id, int n_top);  // room for n_top ids
};

struct WorkItem {
  int row = 0, position = 0, n_tokens = 0;
  bool samples = false;
  const uint32_t* mask = nullptr;  // grammar bits or null
  int n_mask_words = 0;
};

class Runner {
 public:
  Runner(const std::string& level, int n_threads, int max_rows, int max_model_len);

  // Loading: fill `model`, pack every matrix, then start().
  Model model;
  Linear pack(const std::vector<Stored>& parts, WeightsRule rule, bool is_gated, std::vector<float> bias);
  void start(KvType type, int n_blocks);

  void add(int row, const int32_t* ids, int n_ids, int n_prompt, SamplingSpec spec, RowWants wants);
  void drop(int row);
  void append(int row, const int32_t* blocks, int n_blocks);
  const StepOutcome& step(const std::vector<WorkItem>& work);

  // The logits of every position of a text, [n_ids][vocab], computed in the first blocks after the null block: to judge
  // accuracy. Raises std::invalid_argument while any row is used.
  void logits(const int32_t* ids, int n_ids, float* out);

  KvCache kv;
  size_t packed_bytes() const { return packed_bytes_; }
  const char* level() const { return kernels_.level; }

 private:
  struct Row {
    bool is_used = false;
    std::vector<int32_t> ids;     // capacity max_model_len + 1
    std::vector<int32_t> blocks;
    int n_prompt = 0;
    SamplingSpec spec;
    std::unique_ptr<TokenCounts> counts;
    RowWants wants;
    SampleStatus status = SampleStatus::Ok;  // a failed row repeats its failure until it is dropped
  };
  // Why a position's logits are read.
  struct Read {
    int work = 0;
    int prompt_score = -1;  // index into the outcome's prompt_scores, or -1: the row draws
    int token_score = -1;   // likewise
    int hidden = -1;        // index into hidden_works
  };

  Row& used(int row);
  void plan_reads(const std::vector<WorkItem>& work);
  void take(const std::vector<WorkItem>& work, const Read& read, const float* hidden, const float* logits, int thread);
  void score(Scored& scored, const float* logits, int thread, SampleStatus& status);

  const Kernels& kernels_;
  ThreadPool pool_;
  int max_model_len_;
  Arena packed_;
  size_t packed_bytes_ = 0;
  Memory kv_memory_;
  std::vector<Row> rows_;
  std::vector<SamplerScratch> scratch_;
  std::unique_ptr<Step> step_;
  std::vector<Segment> segments_;
  std::vector<Wanted> wanted_;
  std::vector<Read> reads_;
  StepOutcome outcome_;
};

}  // namespace tribar
