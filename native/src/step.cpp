#include "step.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "pack.h"

namespace tribar {
namespace {

constexpr int round_up(int n, int to) { return (n + to - 1) / to * to; }

bool needs(const Linear& linear, WeightType type) {
  for (const Linear::Part& part : linear.parts)
    if (part.matrix.type == type) return true;
  return false;
}

bool needs_q(const Linear& linear) { return needs(linear, WeightType::Int4) || needs(linear, WeightType::Int8); }

int input_width(const Linear& linear) { return linear.parts.front().matrix.k; }

}  // namespace

Step::Step(const Model& model, const KvCache& kv, const Kernels& kernels, ThreadPool& pool)
    : model_(model), kv_(kv), kernels_(kernels), pool_(pool) {
  const int widest = round_up(std::max({model.intermediate, model.hidden, model.q_width()}), kGroup);
  const auto reserve = [widest, &model](Prepared& prepared, int m) {
    if (model.has_fine_activations) prepared.q_low.resize(static_cast<size_t>(m) * widest);
    prepared.q.resize(static_cast<size_t>(m) * widest);
    prepared.scale.resize(static_cast<size_t>(m) * widest / kGroup);
    prepared.sum.resize(static_cast<size_t>(m) * widest / kGroup);
    prepared.f32.resize(static_cast<size_t>(m) * widest);
    prepared.bf16.resize(static_cast<size_t>(m) * widest);
  };
  const size_t m = kMicroBatch;
  const int vocab = round_up(model.vocab, kStrip);
  logits_rows_ = std::clamp((16 << 20) / (4 * vocab), 8, 64);
  tokens_.reserve(m);
  runs_.reserve(m);
  readout_tokens_.reserve(m);
  x_.resize(m * model.hidden);
  qkv_.resize(m * round_up(model.q_width() + 2 * model.kv_width(), kStrip));
  wide_.resize(m * std::max(round_up(model.intermediate, kStrip), model.q_width()));
  temporary_.resize(m * round_up(model.hidden, kStrip));
  reserve(prepared_, kMicroBatch);
  reserve(readout_prepared_, logits_rows_);
  readout_hidden_.resize(static_cast<size_t>(logits_rows_) * model.hidden);
  logits_.resize(static_cast<size_t>(logits_rows_) * vocab);
  max_spans_ = (model.max_model_len + kSpan - 1) / kSpan;
  partials_.resize(pool.n_threads() * thread_partial_floats());
  norm_scratch_.assign(pool.n_threads(), std::vector<float>(model.hidden));
}

// Floats of the partial softmax of one query token over one span and KV head.
size_t Step::partial_floats() const {
  return static_cast<size_t>(model_.n_heads / model_.n_kv_heads) * (model_.head_dim + 2);
}

// Of a whole query tile over all spans; at least four decodes of one query over all spans.
size_t Step::thread_partial_floats() const { return partial_floats() * kQueryTile * max_spans_; }

void Step::run_erased(const std::vector<Segment>& segments, const std::vector<Wanted>& wanted,
                      TakeFunction take, const void* context) {
  size_t segment = 0, next_readout = 0;
  int offset = 0;  // tokens of the segment that are done
  while (segment < segments.size()) {
    tokens_.clear();
    runs_.clear();
    readout_tokens_.clear();
    const size_t first_readout = next_readout;
    while (segment < segments.size() && tokens_.size() < kMicroBatch) {
      const Segment& s = segments[segment];
      const int n = std::min(s.n_tokens - offset, kMicroBatch - static_cast<int>(tokens_.size()));
      for (int i = offset; i < offset + n; i += kQueryTile) {
        const int length = std::min(kQueryTile, offset + n - i);
        runs_.push_back({static_cast<int>(tokens_.size()) + i - offset, length,
                         (s.position + i + length - 1) / kSpan + 1});
      }
      while (next_readout < wanted.size() && wanted[next_readout].segment == static_cast<int>(segment) &&
             wanted[next_readout].token < offset + n)
        readout_tokens_.push_back(static_cast<int>(tokens_.size()) + wanted[next_readout++].token - offset);
      for (int i = offset; i < offset + n; ++i) tokens_.push_back({s.ids[i], s.position + i, s.block_table});
      offset += n;
      if (offset == s.n_tokens) {
        ++segment;
        offset = 0;
      }
    }
    forward();
    for (size_t first = first_readout; first < next_readout; first += logits_rows_)
      read_out(static_cast<int>(first), static_cast<int>(first - first_readout), take, context);
  }
}

void Step::forward() {
  embed();
  for (int index = 0; index < model_.n_layers; ++index) layer(index);
}

void Step::embed() {
  pool_.run(static_cast<int>(tokens_.size()), [&](int token, int) {
    float* x = x_.data() + static_cast<size_t>(token) * model_.hidden;
    read_column(model_.embedding, tokens_[token].id, model_.hidden, x);
    if (model_.embedding_scale != 1.0f)
      for (int i = 0; i < model_.hidden; ++i) x[i] *= model_.embedding_scale;
  });
}

void Step::prepare_row(const Linear& linear, const float* x, int row, int k, Prepared& out) const {
  const int padded = input_width(linear);
  const size_t at = static_cast<size_t>(row) * padded;
  if (needs_q(linear))
    kernels_.quantise(x, k, padded, out.q.data() + at, out.q_low.empty() ? nullptr : out.q_low.data() + at,
                      out.scale.data() + at / kGroup, out.sum.data() + at / kGroup);
  if (needs(linear, WeightType::Bf16)) kernels_.to_bf16(x, k, padded, out.bf16.data() + at);
  if (needs(linear, WeightType::F32)) {
    std::memcpy(out.f32.data() + at, x, k * sizeof(float));
    std::fill(out.f32.data() + at + k, out.f32.data() + at + padded, 0.0f);
  }
}

// prepared_ = the norm of the residual stream, in the forms that `next` reads.
void Step::norm_prepare(const std::vector<float>& weight, const Linear& next) {
  pool_.run(static_cast<int>(tokens_.size()), [&](int token, int thread) {
    float* normed = norm_scratch_[thread].data();
    const float* x = x_.data() + static_cast<size_t>(token) * model_.hidden;
    kernels_.rms_norm(x, weight.data(), model_.hidden, model_.norm_eps, normed);
    prepare_row(next, normed, token, model_.hidden, prepared_);
  });
}

// prepared_ = rows of k values, `stride` apart, in the forms that `next` reads.
void Step::prepare(const Linear& next, const float* x, int k, int stride) {
  pool_.run(static_cast<int>(tokens_.size()), [&](int token, int) {
    prepare_row(next, x + static_cast<size_t>(token) * stride, token, k, prepared_);
  });
}

void Step::project(const Linear& linear, const Prepared& input, int m, float* out, int stride, Epilogue epilogue) {
  for (const Linear::Part& part : linear.parts) {
    const Matrix& matrix = part.matrix;
    Activations a;
    a.m = m;
    a.k = matrix.k;
    a.q = input.q.data();
    a.q_low = input.q_low.empty() ? nullptr : input.q_low.data();
    a.scale = input.scale.data();
    a.sum = input.sum.data();
    a.bf16 = input.bf16.data();
    a.f32 = input.f32.data();
    Output target{out + part.first_output, stride, linear.bias.empty() ? nullptr : linear.bias.data() + part.first_output,
                  epilogue};
    // A tile is worth about 64 KB of weights read, or the same time of arithmetic.
    const size_t pair_cost = 2 * matrix.strip_bytes() * (1 + m / 4);
    const int n_pairs = (matrix.n_strips() + 1) / 2;
    const int grain = std::clamp(static_cast<int>((64 << 10) / pair_cost), 1, std::max(1, n_pairs / pool_.n_threads()));
    const int n_tiles = (n_pairs + grain - 1) / grain;
    pool_.run(n_tiles, [&](int tile, int) {
      kernels_.gemm(matrix, a, 2 * grain * tile, std::min(2 * grain * (tile + 1), matrix.n_strips()), target);
    });
  }
}

// x += linear(prepared_), normed first where the family has post-norms.
void Step::add_residual(const Linear& linear, const std::vector<float>& post_norm) {
  const int m = static_cast<int>(tokens_.size());
  if (post_norm.empty() && model_.hidden % kStrip == 0) {
    project(linear, prepared_, m, x_.data(), model_.hidden, Epilogue::Add);
    return;
  }
  const int stride = round_up(model_.hidden, kStrip);
  project(linear, prepared_, m, temporary_.data(), stride, Epilogue::Store);
  pool_.run(m, [&](int token, int thread) {
    float* y = temporary_.data() + static_cast<size_t>(token) * stride;
    float* x = x_.data() + static_cast<size_t>(token) * model_.hidden;
    if (!post_norm.empty()) {
      float* normed = norm_scratch_[thread].data();
      kernels_.rms_norm(y, post_norm.data(), model_.hidden, model_.norm_eps, normed);
      y = normed;
    }
    for (int i = 0; i < model_.hidden; ++i) x[i] += y[i];
  });
}

void Step::layer(int index) {
  const LayerWeights& weights = model_.layers[index];
  const int m = static_cast<int>(tokens_.size());
  const int qkv_width = round_up(model_.q_width() + 2 * model_.kv_width(), kStrip);
  norm_prepare(weights.attention_norm, weights.qkv);
  project(weights.qkv, prepared_, m, qkv_.data(), qkv_width, Epilogue::Store);
  pool_.run(m, [&](int token, int) {
    float* q = qkv_.data() + static_cast<size_t>(token) * qkv_width;
    float* k = q + model_.q_width();
    const auto norm_heads = [&](float* heads, int n, const std::vector<float>& weight) {
      if (weight.empty()) return;
      for (int head = 0; head < n; ++head, heads += model_.head_dim)
        kernels_.rms_norm(heads, weight.data(), model_.head_dim, model_.norm_eps, heads);
    };
    norm_heads(q, model_.n_heads, weights.q_norm);
    norm_heads(k, model_.n_kv_heads, weights.k_norm);
    const RopeTable& rope = model_.ropes[weights.rope];
    const float* cos_sin = rope.at(tokens_[token].position);
    kernels_.rope(q, model_.n_heads + model_.n_kv_heads, model_.head_dim, rope.rotary_dim, cos_sin,
                  model_.rope_interleaved);
    const int position = tokens_[token].position;
    kernels_.kv_write(kv_, index, tokens_[token].block_table[position / kBlock], position % kBlock, k,
                      k + model_.kv_width());
  });
  attention(index);
  prepare(weights.output, wide_.data(), model_.q_width(), model_.q_width());
  add_residual(weights.output, weights.post_attention_norm);
  norm_prepare(weights.mlp_norm, weights.gate_up);
  const int wide = round_up(model_.intermediate, kStrip);
  project(weights.gate_up, prepared_, m, wide_.data(), wide,
          model_.is_gelu ? Epilogue::GatedGelu : Epilogue::GatedSilu);
  prepare(weights.down, wide_.data(), model_.intermediate, wide);
  add_residual(weights.down, weights.post_mlp_norm);
}

// The queries of one run over one KV head.
AttentionTask Step::task_of(int index, const QueryRun& run, int kv_head) {
  const int n_heads = model_.n_heads / model_.n_kv_heads, q_width = model_.q_width();
  const int qkv_width = round_up(q_width + 2 * model_.kv_width(), kStrip);
  AttentionTask task;
  task.layer = index;
  task.kv_head = kv_head;
  task.block_table = tokens_[run.first_token].block_table;
  task.n_queries = run.n_tokens;
  task.position = tokens_[run.first_token].position;
  task.window = model_.layers[index].window;
  task.q = qkv_.data() + static_cast<size_t>(run.first_token) * qkv_width + kv_head * n_heads * model_.head_dim;
  task.q_stride = qkv_width;
  task.n_heads = n_heads;
  task.scale = model_.attention_scale;
  task.softcap = model_.attention_softcap;
  task.out = wide_.data() + static_cast<size_t>(run.first_token) * q_width + kv_head * n_heads * model_.head_dim;
  task.out_stride = q_width;
  return task;
}

Step::Partials Step::partials_at(float* base, int n, int n_spans) const {
  return {base, base + n_spans * n, base + 2 * n_spans * n, n, model_.head_dim};
}

// wide_ [m][q_width] = attention of every query run over every KV head. Long contexts of few rows are cut by spans too.
void Step::attention(int index) {
  const int n_runs = static_cast<int>(runs_.size()), n_kv = model_.n_kv_heads;
  const int n_heads = model_.n_heads / n_kv;
  int n_spans = 1, n_queries = 1;
  for (const QueryRun& run : runs_) {
    n_spans = std::max(n_spans, run.n_spans);
    n_queries = std::max(n_queries, run.n_tokens);
  }
  const int n_tasks = n_runs * n_kv;
  if (n_spans > 1 && n_queries == 1 && n_tasks < 4 * pool_.n_threads()) {
    const auto partials = [&](int task) {
      return partials_at(partials_.data() + task * n_spans * partial_floats(), n_heads, n_spans);
    };
    pool_.run(n_tasks * n_spans, [&](int tile, int) {
      const int task = tile / n_spans, span = tile % n_spans;
      const QueryRun& run = runs_[task / n_kv];
      if (span >= run.n_spans) return;
      const Partials p = partials(task);
      kernels_.attend_span(kv_, task_of(index, run, task % n_kv), span, p.max_of(span), p.sum_of(span), p.acc_of(span));
    });
    pool_.run(n_tasks, [&](int task, int) {
      const QueryRun& run = runs_[task / n_kv];
      const Partials p = partials(task);
      kernels_.merge_spans(task_of(index, run, task % n_kv), model_.head_dim, run.n_spans, p.max, p.sum, p.acc);
    });
    return;
  }
  pool_.run(n_tasks, [&](int tile, int thread) {
    const QueryRun& run = runs_[n_runs - 1 - tile / n_kv];  // the longest of a prefill first
    const AttentionTask task = task_of(index, run, tile % n_kv);
    const Partials p = partials_at(partials_.data() + thread * thread_partial_floats(), run.n_tokens * n_heads, run.n_spans);
    for (int span = 0; span < run.n_spans; ++span)
      kernels_.attend_span(kv_, task, span, p.max_of(span), p.sum_of(span), p.acc_of(span));
    kernels_.merge_spans(task, model_.head_dim, run.n_spans, p.max, p.sum, p.acc);
  });
}

void Step::read_out(int first, int first_in_batch, TakeFunction take, const void* context) {
  const int n = std::min(logits_rows_, static_cast<int>(readout_tokens_.size()) - first_in_batch);
  const int vocab = round_up(model_.vocab, kStrip);
  pool_.run(n, [&](int i, int) {
    float* hidden = readout_hidden_.data() + static_cast<size_t>(i) * model_.hidden;
    const float* x = x_.data() + static_cast<size_t>(readout_tokens_[first_in_batch + i]) * model_.hidden;
    kernels_.rms_norm(x, model_.final_norm.data(), model_.hidden, model_.norm_eps, hidden);
    prepare_row(model_.lm_head, hidden, i, model_.hidden, readout_prepared_);
  });
  project(model_.lm_head, readout_prepared_, n, logits_.data(), vocab, Epilogue::Store);
  pool_.run(n, [&](int i, int thread) {
    float* logits = logits_.data() + static_cast<size_t>(i) * vocab;
    if (model_.final_softcap > 0)
      for (int id = 0; id < model_.vocab; ++id)
        logits[id] = model_.final_softcap * std::tanh(logits[id] / model_.final_softcap);
    take(context, first + i, readout_hidden_.data() + static_cast<size_t>(i) * model_.hidden, logits, thread);
  });
}

}  // namespace tribar
