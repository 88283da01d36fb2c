#include "runner.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <stdexcept>
#include <utility>

namespace tribar {

Memory::Memory(size_t n_bytes) : n_bytes_(n_bytes) {
  void* data = mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<uint8_t*>(data);
  madvise(data, n_bytes, MADV_HUGEPAGE);  // a wish: nothing is lost where it is not granted
}

Memory::~Memory() {
  if (data_) munmap(data_, n_bytes_);
}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(n_bytes_, other.n_bytes_);
  return *this;
}

uint8_t* Arena::allocate(size_t n_bytes) {
  constexpr size_t kPiece = size_t{64} << 20;
  n_bytes = (n_bytes + 63) / 64 * 64;
  if (pieces_.empty() || n_used_ + n_bytes > pieces_.back().n_bytes()) {
    pieces_.emplace_back(std::max(n_bytes, kPiece));
    n_used_ = 0;
  }
  n_used_ += n_bytes;
  return pieces_.back().data() + n_used_ - n_bytes;
}

Runner::Runner(const std::string& level, int n_threads, int max_rows, int max_model_len)
    : kernels_(kernels_for(level)), pool_(n_threads), max_model_len_(max_model_len), rows_(max_rows) {}

Linear Runner::pack(const std::vector<Stored>& parts, WeightsRule rule, bool is_gated, std::vector<float> bias) {
  Linear linear;
  int first_output = 0;
  for (const PackSpec& spec : plan_matrices(parts, rule, is_gated)) {
    uint8_t* data = packed_.allocate(spec.n_bytes());
    packed_bytes_ += spec.n_bytes();
    const Matrix matrix = spec.matrix(data);
    const int n_strips = matrix.n_strips();
    std::vector<PackFault> faults(pool_.n_threads());
    const int grain = 2 * ((n_strips / (8 * pool_.n_threads()) + 2) / 2);
    pool_.run((n_strips + grain - 1) / grain, [&](int tile, int thread) {
      const PackFault fault =
          pack_strips(spec, tile * grain, std::min(n_strips, (tile + 1) * grain), data);
      if (fault) faults[thread] = fault;
    });
    for (const PackFault& fault : faults)
      if (fault)
        throw std::range_error("row " + std::to_string(fault.row) + ", inputs from " + std::to_string(fault.input) +
                               ": its scales do not fit 16 bits");
    if (first_output % kStrip != 0) throw std::range_error("a part of this width cannot be followed by another type");
    linear.parts.push_back({matrix, first_output});
    first_output += spec.n();
  }
  if (!bias.empty()) {
    linear.bias = std::move(bias);
    linear.bias.resize((linear.bias.size() + kStrip - 1) / kStrip * kStrip);
  }
  return linear;
}

void Runner::start(KvType type, int n_blocks) {
  kv.type = type;
  kv.n_layers = model.n_layers;
  kv.n_blocks = n_blocks;
  kv.n_kv_heads = model.n_kv_heads;
  kv.head_dim = model.head_dim;
  kv_memory_ = Memory(static_cast<size_t>(kv.n_layers) * n_blocks * kv.block_bytes());
  kv.data = kv_memory_.data();
  step_ = std::make_unique<Step>(model, kv, kernels_, pool_);
  for (int thread = 0; thread < pool_.n_threads(); ++thread) scratch_.emplace_back(model.vocab);
  for (Row& row : rows_) {
    row.ids.reserve(max_model_len_ + 1);
    row.blocks.reserve(max_model_len_ / kBlock + 2);
  }
  outcome_.tokens.reserve(rows_.size());
  outcome_.statuses.reserve(rows_.size());
  segments_.reserve(rows_.size());
  wanted_.reserve(rows_.size());
  reads_.reserve(rows_.size());
}

Runner::Row& Runner::used(int row) {
  if (row < 0 || row >= static_cast<int>(rows_.size()) || !rows_[row].is_used)
    throw std::invalid_argument("row " + std::to_string(row) + " holds no sequence");
  return rows_[row];
}

void Runner::add(int index, const int32_t* ids, int n_ids, int n_prompt, SamplingSpec spec, RowWants wants) {
  if (index < 0 || index >= static_cast<int>(rows_.size()) || rows_[index].is_used)
    throw std::invalid_argument("row " + std::to_string(index) + " cannot be added");
  if (n_ids < 1 || n_ids > max_model_len_ || n_prompt < 1 || n_prompt > n_ids)
    throw std::invalid_argument("row " + std::to_string(index) + ": impossible number of ids");
  for (int i = 0; i < n_ids; ++i)
    if (ids[i] < 0 || ids[i] >= model.vocab) throw std::invalid_argument("an id outside the vocabulary");
  Row& row = rows_[index];
  row.is_used = true;
  row.ids.assign(ids, ids + n_ids);
  row.blocks.clear();
  row.n_prompt = n_prompt;
  row.spec = std::move(spec);
  row.counts.reset();
  if (row.spec.has_penalties()) row.counts = std::make_unique<TokenCounts>(ids, n_ids, n_prompt, max_model_len_ + 1);
  row.wants = wants;
  row.status = SampleStatus::Ok;
}

void Runner::drop(int row) { used(row).is_used = false; }

void Runner::append(int row, const int32_t* blocks, int n_blocks) {
  for (int i = 0; i < n_blocks; ++i)
    if (blocks[i] < 0 || blocks[i] >= kv.n_blocks) throw std::invalid_argument("no block " + std::to_string(blocks[i]));
  std::vector<int32_t>& table = used(row).blocks;
  table.insert(table.end(), blocks, blocks + n_blocks);
}

void StepOutcome::clear(size_t n_work) {
  tokens.assign(n_work, -1);
  statuses.assign(n_work, 0);
  token_scores.clear();
  prompt_scores.clear();
  top_ids.clear();
  top_logprobs.clear();
  hidden_works.clear();
  hidden.clear();
}

Scored StepOutcome::scored(int work, int32_t id, int n_top) {
  const size_t first = top_ids.size();
  top_ids.resize(first + n_top);
  top_logprobs.resize(first + n_top);
  return {work, id, 0, first, n_top};
}

// Lists the positions whose logits are needed: all scored prompt positions, and the last one of a row that draws.
void Runner::plan_reads(const std::vector<WorkItem>& work) {
  wanted_.clear();
  reads_.clear();
  for (int i = 0; i < static_cast<int>(work.size()); ++i) {
    const WorkItem& item = work[i];
    const Row& row = rows_[item.row];
    if (row.wants.n_prompt_logprobs >= 0) {
      const int n_scored = std::min(item.position + item.n_tokens, row.n_prompt - 1) - item.position;
      for (int token = 0; token < n_scored; ++token) {
        wanted_.push_back({i, token});
        reads_.push_back({i, static_cast<int>(outcome_.prompt_scores.size())});
        const int n_top = std::min(row.wants.n_prompt_logprobs, model.vocab);
        outcome_.prompt_scores.push_back(outcome_.scored(i, row.ids[item.position + token + 1], n_top));
      }
    }
    if (!item.samples) continue;
    Read read{i};
    if (row.wants.n_logprobs >= 0) {
      read.token_score = static_cast<int>(outcome_.token_scores.size());
      outcome_.token_scores.push_back(outcome_.scored(i, 0, std::min(row.wants.n_logprobs, model.vocab)));
    }
    if (row.wants.hidden) {
      read.hidden = static_cast<int>(outcome_.hidden_works.size());
      outcome_.hidden_works.push_back(i);
      outcome_.hidden.resize(outcome_.hidden_works.size() * model.hidden);
    }
    wanted_.push_back({i, item.n_tokens - 1});
    reads_.push_back(read);
  }
}

const StepOutcome& Runner::step(const std::vector<WorkItem>& work) {
  outcome_.clear(work.size());
  segments_.clear();
  for (const WorkItem& item : work) {
    const Row& row = used(item.row);
    const int end = item.position + item.n_tokens;
    if (item.position < 0 || item.n_tokens < 1 || end > static_cast<int>(row.ids.size()) ||
        item.samples != (end == static_cast<int>(row.ids.size())))
      throw std::invalid_argument("row " + std::to_string(item.row) + ": work beyond its ids");
    if (static_cast<int>(row.blocks.size()) * kBlock < end)
      throw std::invalid_argument("row " + std::to_string(item.row) + ": work beyond its blocks");
    segments_.push_back({row.ids.data() + item.position, row.blocks.data(), item.position, item.n_tokens});
  }
  plan_reads(work);
  step_->run(segments_, wanted_, [&](int index, const float* hidden, const float* logits, int thread) {
    take(work, reads_[index], hidden, logits, thread);
  });
  for (size_t i = 0; i < work.size(); ++i) {
    Row& row = rows_[work[i].row];
    if (row.status == SampleStatus::Ok) row.status = static_cast<SampleStatus>(outcome_.statuses[i]);
    outcome_.statuses[i] = static_cast<int>(row.status);
    if (row.status != SampleStatus::Ok) outcome_.tokens[i] = -1;
    if (outcome_.tokens[i] < 0) continue;
    row.ids.push_back(outcome_.tokens[i]);
    if (row.counts) row.counts->add_output(outcome_.tokens[i]);
  }
  return outcome_;
}

void Runner::logits(const int32_t* ids, int n_ids, float* out) {
  for (const Row& row : rows_)
    if (row.is_used) throw std::invalid_argument("rows are in use");
  if (n_ids < 1 || n_ids > max_model_len_ || (n_ids - 1) / kBlock + 2 > kv.n_blocks)
    throw std::invalid_argument("more ids than the context or the blocks hold");
  for (int i = 0; i < n_ids; ++i)
    if (ids[i] < 0 || ids[i] >= model.vocab) throw std::invalid_argument("an id outside the vocabulary");
  std::vector<int32_t> table((n_ids - 1) / kBlock + 1);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i) + 1;
  segments_.assign(1, {ids, table.data(), 0, n_ids});
  wanted_.clear();
  for (int i = 0; i < n_ids; ++i) wanted_.push_back({0, i});
  step_->run(segments_, wanted_, [&](int index, const float*, const float* logits, int) {
    std::copy(logits, logits + model.vocab, out + static_cast<size_t>(index) * model.vocab);
  });
}

void Runner::take(const std::vector<WorkItem>& work, const Read& read, const float* hidden, const float* logits,
                  int thread) {
  const WorkItem& item = work[read.work];
  const Row& row = rows_[item.row];
  SampleStatus status = SampleStatus::Ok;
  if (read.prompt_score >= 0) {
    score(outcome_.prompt_scores[read.prompt_score], logits, thread, status);
  } else {
    const SamplerRow sampler{&row.spec, row.counts.get(), static_cast<int>(row.ids.size()) - row.n_prompt, item.mask,
                             item.n_mask_words};
    const Sampled sampled = sample(kernels_, logits, model.vocab, sampler, scratch_[thread]);
    status = sampled.status;
    outcome_.tokens[read.work] = sampled.id;
    if (read.token_score >= 0 && status == SampleStatus::Ok) {
      Scored& scored = outcome_.token_scores[read.token_score];
      scored.id = sampled.id;
      score(scored, logits, thread, status);
    }
    if (read.hidden >= 0)
      std::copy(hidden, hidden + model.hidden, outcome_.hidden.begin() + static_cast<size_t>(read.hidden) * model.hidden);
  }
  // Several positions of one row may fail at once, on several threads; any of them will do.
  if (status != SampleStatus::Ok)
    __atomic_store_n(&outcome_.statuses[read.work], static_cast<int>(status), __ATOMIC_RELAXED);
}

void Runner::score(Scored& scored, const float* logits, int thread, SampleStatus& status) {
  status = token_logprobs(kernels_, logits, model.vocab, scored.id, scored.n_top, scratch_[thread], &scored.logprob,
                          outcome_.top_ids.data() + scored.first_top, outcome_.top_logprobs.data() + scored.first_top);
}

}  // namespace tribar
