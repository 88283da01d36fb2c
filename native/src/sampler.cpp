#include "sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "philox.h"

namespace tribar {
namespace {

constexpr double kBanAt = -100.0;
constexpr float kNever = -std::numeric_limits<float>::infinity();

// Error bounds of sums of weights, relative to the sum Z of all weights.
//
// fp32 (run_weights): the argument a of exp carries three roundings, so a weight w is off by 3 * 2^-24 |a| w, and
// sum(w |a|) <= Z (ln n + 1) since the largest weight is at least 1/e; exp itself is good to 2^-22, and the 16 + 4
// additions of a run to 20 * 2^-24. For n = 2^18 together 4e-6. Two such sums are compared, so the margin is 1e-5.
constexpr double kFastMargin = 1e-5;
// fp64 (exp_sum): n / 8 additions per lane, at most 2^15 * 2^-53 = 4e-12.
constexpr double kSumMargin = 1e-10;

bool outranks(const Candidate& a, const Candidate& b) {
  return a.scaled > b.scaled || (a.scaled == b.scaled && a.id < b.id);
}
bool precedes(const Candidate& a, const Candidate& b) { return a.id < b.id; }

// Largest float not above x.
float float_below(double x) {
  const auto y = static_cast<float>(x);
  return static_cast<double>(y) > x ? std::nextafter(y, kNever) : y;
}

// The row after steps 1 to 3: fp32 where neither bias nor penalty came, fp64 overrides (sorted by id) elsewhere.
// Forbidden ids are -inf in `plain` and absent from the overrides; overridden ids are -inf in `plain`.
struct Scores {
  const float* plain;
  const Override* overrides;
  int n_overrides = 0;
  float largest_plain = kNever;
  double best = kNever;
};

bool is_allowed(const SamplerRow& row, int id) {
  return !row.mask || (id / 32 < row.n_mask_words && (row.mask[id / 32] >> (id % 32) & 1));
}

bool is_suppressing(const SamplerRow& row) {
  return !row.spec->suppressed.empty() && row.output_index < row.spec->min_tokens;
}

double penalised(const SamplingSpec& spec, double score, const TokenCount& count) {
  score = score > 0 ? score / spec.repetition_penalty : score * spec.repetition_penalty;
  return score - (spec.frequency_penalty * count.n_output + spec.presence_penalty * (count.n_output > 0));
}

// Steps 1 and 2 for the ids that they touch. Moves them from `scores` to the overrides; returns how many are not banned.
int override_scores(const SamplerRow& row, float* scores, Override* overrides) {
  const SamplingSpec& spec = *row.spec;
  const TokenCount* count = nullptr;
  const TokenCount* counts_end = nullptr;
  if (spec.has_penalties()) {
    count = row.counts->sorted().data();
    counts_end = count + row.counts->sorted().size();
  }
  const Bias* bias = spec.bias.data();
  const Bias* bias_end = bias + spec.bias.size();
  int n = 0;
  while (count != counts_end || bias != bias_end) {
    const int32_t id = bias == bias_end    ? count->id
                       : count == counts_end ? bias->id
                                             : std::min(count->id, bias->id);
    double score = scores[id];
    bool is_banned = !is_allowed(row, id);
    for (; bias != bias_end && bias->id == id; ++bias) {
      score += bias->value;
      is_banned |= bias->value <= kBanAt;
    }
    if (count != counts_end && count->id == id) score = penalised(spec, score, *count++);
    scores[id] = kNever;
    if (!is_banned && score > kNever) overrides[n++] = {id, score};
  }
  return n;
}

// Step 3 for the plain scores.
void apply_mask(const SamplerRow& row, float* scores, int vocab) {
  for (int begin = 0; begin < vocab; begin += 32) {
    const uint32_t word = begin / 32 < row.n_mask_words ? row.mask[begin / 32] : 0;
    if (word == ~0u) continue;
    const int end = std::min(begin + 32, vocab);
    for (int id = begin; id < end; ++id)
      if (!(word >> (id - begin) & 1)) scores[id] = kNever;
  }
}

void suppress(const SamplerRow& row, float* scores, Override* overrides, int* n_overrides) {
  for (const int32_t id : row.spec->suppressed) scores[id] = kNever;
  const auto& ids = row.spec->suppressed;
  const auto is_suppressed = [&](const Override& o) { return std::find(ids.begin(), ids.end(), o.id) != ids.end(); };
  *n_overrides = static_cast<int>(std::remove_if(overrides, overrides + *n_overrides, is_suppressed) - overrides);
}

// Steps 1 to 3. scratch.maxima holds the run maxima of `logits` before and those of the plain scores after.
Scores edited(const Kernels& kernels, const float* logits, int vocab, const SamplerRow& row, SamplerScratch& scratch) {
  Scores scores{logits, scratch.overrides.get()};
  if (row.spec->has_penalties() || !row.spec->bias.empty() || row.mask || is_suppressing(row)) {
    float* plain = scratch.scores.get();
    std::copy(logits, logits + vocab, plain);
    scores.n_overrides = override_scores(row, plain, scratch.overrides.get());
    if (row.mask) apply_mask(row, plain, vocab);
    if (is_suppressing(row)) suppress(row, plain, scratch.overrides.get(), &scores.n_overrides);
    kernels.run_maxima(plain, vocab, scratch.maxima.get());
    scores.plain = plain;
  }
  scores.largest_plain = *std::max_element(scratch.maxima.get(), scratch.maxima.get() + scratch.n_runs);
  scores.best = scores.largest_plain;
  for (int i = 0; i < scores.n_overrides; ++i) scores.best = std::max(scores.best, scores.overrides[i].score);
  return scores;
}

// The first id with the best score.
int argmax(const Scores& scores, const float* maxima, int vocab) {
  int first = vocab;
  for (int i = 0; i < scores.n_overrides && first == vocab; ++i)
    if (scores.overrides[i].score == scores.best) first = scores.overrides[i].id;
  if (scores.largest_plain < scores.best) return first;
  int run = 0;
  while (maxima[run] != scores.largest_plain) ++run;
  int id = run * kRun;
  while (scores.plain[id] != scores.largest_plain) ++id;
  return std::min(id, first);
}

// A logit that at least k of the plain scores reach: the k-th largest run maximum, or score where there are fewer runs.
float floor_of_top(int k, const float* plain, int vocab, SamplerScratch& scratch) {
  const float* values = k <= scratch.n_runs ? scratch.maxima.get() : plain;
  const int n = k <= scratch.n_runs ? scratch.n_runs : vocab;
  float* order = scratch.order.get();
  std::copy(values, values + n, order);
  std::nth_element(order, order + k - 1, order + n, std::greater<float>());
  return order[k - 1];
}

// Steps 4 to 8 for one row that is not greedy.
class Draw {
 public:
  Draw(const Kernels& kernels, const Scores& scores, int vocab, const SamplerRow& row, SamplerScratch& scratch)
      : kernels_(kernels), scores_(scores), vocab_(vocab), spec_(*row.spec), scratch_(scratch),
        candidates_(scratch.candidates.get()), t_(spec_.temperature), largest_(scores.best / spec_.temperature),
        u_(philox_uniform(spec_.seed, static_cast<uint32_t>(row.output_index))) {}

  Sampled run() {
    const bool has_k = spec_.top_k > 0 && spec_.top_k < vocab_;
    float floor = kNever;
    if (spec_.min_p > 0) floor = floor_of_weight(spec_.min_p);
    if (has_k) floor = std::max(floor, floor_of_top(spec_.top_k, scores_.plain, vocab_, scratch_));
    if (spec_.min_p > 0 || has_k) return {literal(floor)};
    const int id = spec_.top_p < 1 ? fast_nucleus() : fast_plain();
    return id >= 0 ? Sampled{id} : Sampled{literal(kNever), SampleStatus::Ok, true};
  }

 private:
  // A logit below which a weight is certainly less than `weight` (with room for the roundings of the specification).
  float floor_of_weight(double weight) const {
    const double depth = t_ * std::log(weight);
    return float_below(scores_.best + depth - 1e-12 * (std::abs(scores_.best) + std::abs(depth) + t_));
  }

  // Plain scores from `floor` up and every override, with their weights, in id order.
  int collect(float floor) {
    const Override* next = scores_.overrides;
    const Override* last = next + scores_.n_overrides;
    int n = 0;
    const auto add_overrides_before = [&](int end) {
      for (; next != last && next->id < end; ++next) candidates_[n++] = weighed(next->id, next->score);
    };
    for (int run = 0; run < scratch_.n_runs; ++run) {
      const int end = std::min((run + 1) * kRun, vocab_);
      if (scratch_.maxima[run] >= floor)
        for (int id = run * kRun; id < end; ++id)
          if (scores_.plain[id] >= floor && scores_.plain[id] > kNever) {
            add_overrides_before(id);
            candidates_[n++] = weighed(id, scores_.plain[id]);
          }
      add_overrides_before(end);
    }
    return n;
  }

  Candidate weighed(int id, double score) const {
    const double scaled = score / t_;
    return {scaled, std::exp(scaled - largest_), id};
  }

  // Steps 5 to 8 word by word, given that nothing below `floor` survives step 6.
  int literal(float floor) {
    int n = collect(floor);
    if (spec_.min_p > 0) {
      const auto is_unlikely = [&](const Candidate& c) { return c.weight < spec_.min_p; };
      n = static_cast<int>(std::remove_if(candidates_, candidates_ + n, is_unlikely) - candidates_);
    }
    if (spec_.top_k > 0 && spec_.top_k < n) {
      std::nth_element(candidates_, candidates_ + spec_.top_k, candidates_ + n, outranks);
      n = spec_.top_k;
    }
    if (spec_.top_p < 1) {
      std::sort(candidates_, candidates_ + n, outranks);
      double total = 0, reached = 0;
      for (int i = 0; i < n; ++i) total += candidates_[i].weight;
      int kept = 0;
      while (kept < n && (kept == 0 || reached < spec_.top_p * total)) reached += candidates_[kept++].weight;
      n = kept;
    }
    return pick(candidates_, n);
  }

  // Step 8.
  int pick(Candidate* kept, int n) const {
    if (!std::is_sorted(kept, kept + n, precedes)) std::sort(kept, kept + n, precedes);
    double total = 0, reached = 0;
    for (int i = 0; i < n; ++i) total += kept[i].weight;
    for (int i = 0; i < n; ++i)
      if ((reached += kept[i].weight) > u_ * total) return kept[i].id;
    return kept[n - 1].id;
  }

  // The sums of weights by run and in all, relative to exp(base / t), overrides apart. False where the error bounds do
  // not hold: base is not near the best score, or scores are so large that the specification itself cancels.
  bool sum_weights(double* total) {
    base_ = float_below(scores_.best);
    if (base_ < scores_.best) base_ = std::nextafter(base_, -kNever);
    if (base_ - scores_.best > t_ || std::abs(largest_) > 1e5) return false;
    kernels_.run_weights(scores_.plain, vocab_, base_, static_cast<float>(1 / t_), scratch_.sums.get());
    *total = 0;
    for (int run = 0; run < scratch_.n_runs; ++run) *total += scratch_.sums[run];
    for (int i = 0; i < scores_.n_overrides; ++i) *total += weight(scores_.overrides[i].score);
    return true;
  }

  double weight(double score) const { return std::exp((score - base_) / t_); }

  // Step 8 over all ids, or -1 where the sums do not decide it: finds the run, then the id within the run.
  int fast_plain() {
    double total;
    if (!sum_weights(&total)) return -1;
    const double target = u_ * total, margin = kFastMargin * total;
    const Override* next = scores_.overrides;
    const Override* end = next + scores_.n_overrides;
    double reached = 0;
    for (int run = 0; run < scratch_.n_runs; ++run) {
      const int stop = std::min((run + 1) * kRun, vocab_);
      double sum = scratch_.sums[run];
      const Override* first = next;
      for (; next != end && next->id < stop; ++next) sum += weight(next->score);
      if (reached + sum > target) return within_run(run * kRun, stop, first, next, reached, target, margin);
      reached += sum;
    }
    return -1;
  }

  int within_run(int begin, int end, const Override* next, const Override* last, double reached, double target,
                 double margin) const {
    for (int id = begin; id < end; ++id) {
      double score = scores_.plain[id];
      if (next != last && next->id == id) score = (next++)->score;
      const double after = reached + weight(score);
      if (after > target) return reached + margin < target && target + margin < after ? id : -1;
      reached = after;
    }
    return -1;
  }

  // Steps 7 and 8 where top-p is the only filter, or -1 where the sums do not decide the nucleus.
  int fast_nucleus() {
    double total;
    if (!sum_weights(&total)) return -1;
    total *= std::exp(base_ / t_ - largest_);  // now relative to the best score, as weights are
    // All ids with less than this weight together weigh less than 1 - top_p, so the nucleus lies above.
    const float floor = floor_of_weight(std::min(1.0, (1 - spec_.top_p) * total * (1 - kFastMargin) / vocab_));
    const int n = collect(floor);
    for (const double margin : {kFastMargin, kSumMargin}) {
      const double target = spec_.top_p * total;
      const Prefix nucleus = shortest_prefix(n, target);
      if (nucleus.before < target * (1 - margin) && nucleus.reached >= target * (1 + margin))
        return pick(candidates_, in_id_order(nucleus.n, floor));
      total = exact_total();
    }
    return -1;
  }

  // The n likeliest candidates, their sum, and the sum without the last of them.
  struct Prefix {
    int n;
    double before, reached;
  };

  // The shortest prefix of the ranking that reaches `target`, moved to the front of the n candidates: halves the range
  // that holds its end until it is small enough to sort.
  Prefix shortest_prefix(int n, double target) {
    int begin = 0, end = n;
    double reached = 0;
    while (end - begin > 64) {
      const int middle = begin + (end - begin) / 2;
      std::nth_element(candidates_ + begin, candidates_ + middle, candidates_ + end, outranks);
      double sum = 0;
      for (int i = begin; i < middle; ++i) sum += candidates_[i].weight;
      if (reached + sum >= target) {
        end = middle;
      } else {
        begin = middle;
        reached += sum;
      }
    }
    std::sort(candidates_ + begin, candidates_ + end, outranks);
    double before = reached;
    while (begin < end && reached < target) {
      before = reached;
      reached += candidates_[begin++].weight;
    }
    return {begin, before, reached};
  }

  // Puts the first n candidates, which outrank the others, in id order. Where they are many, collecting them again is
  // faster than sorting.
  int in_id_order(int n, float floor) {
    if (n <= 1024) return n;  // pick() sorts
    const Candidate last = *std::max_element(candidates_, candidates_ + n, outranks);
    const int n_collected = collect(floor);
    const auto is_beyond = [&](const Candidate& c) { return outranks(last, c); };
    return static_cast<int>(std::remove_if(candidates_, candidates_ + n_collected, is_beyond) - candidates_);
  }

  double exact_total() const {
    double total = kernels_.exp_sum(scores_.plain, vocab_, scores_.best, 1 / t_);
    for (int i = 0; i < scores_.n_overrides; ++i) total += std::exp(scores_.overrides[i].score / t_ - largest_);
    return total;
  }

  const Kernels& kernels_;
  const Scores& scores_;
  const int vocab_;
  const SamplingSpec& spec_;
  SamplerScratch& scratch_;
  Candidate* const candidates_;
  const double t_, largest_, u_;
  float base_ = 0;
};

}  // namespace

TokenCounts::TokenCounts(const int32_t* ids, int n_ids, int n_prompt, int capacity) {
  counts_.reserve(std::max(capacity, n_ids));
  for (int i = 0; i < n_ids; ++i) counts_.push_back({ids[i], i >= n_prompt});
  std::sort(counts_.begin(), counts_.end(), [](const TokenCount& a, const TokenCount& b) { return a.id < b.id; });
  size_t n = 0;
  for (const TokenCount& count : counts_) {
    if (n > 0 && counts_[n - 1].id == count.id) {
      counts_[n - 1].n_output += count.n_output;
    } else {
      counts_[n++] = count;
    }
  }
  counts_.resize(n);
}

void TokenCounts::add_output(int32_t id) {
  const auto at = std::lower_bound(counts_.begin(), counts_.end(), id,
                                   [](const TokenCount& count, int32_t wanted) { return count.id < wanted; });
  if (at != counts_.end() && at->id == id) {
    ++at->n_output;
  } else {
    counts_.insert(at, {id, 1});
  }
}

const char* message_of(SampleStatus status) {
  switch (status) {
    case SampleStatus::NonFinite: return "the model gave non-finite logits for this row";
    case SampleStatus::NothingAllowed:
      return "no token may be drawn: grammar, logit_bias and min_tokens together forbid the whole vocabulary";
    default: return "";
  }
}

SamplerScratch::SamplerScratch(int vocab_size)
    : n_runs((vocab_size + kRun - 1) / kRun), scores(new float[vocab_size]), maxima(new float[n_runs]),
      sums(new float[n_runs]), order(new float[vocab_size]), candidates(new Candidate[vocab_size]),
      overrides(new Override[vocab_size]) {}

Sampled sample(const Kernels& kernels, const float* logits, int vocab, const SamplerRow& row, SamplerScratch& scratch) {
  float* maxima = scratch.maxima.get();
  if (!kernels.run_maxima(logits, vocab, maxima) || *std::max_element(maxima, maxima + scratch.n_runs) == kNever)
    return {-1, SampleStatus::NonFinite};
  const Scores scores = edited(kernels, logits, vocab, row, scratch);
  if (!std::isfinite(scores.best)) return {-1, SampleStatus::NothingAllowed};
  if (row.spec->is_greedy()) return {argmax(scores, maxima, vocab)};
  return Draw(kernels, scores, vocab, row, scratch).run();
}

SampleStatus token_logprobs(const Kernels& kernels, const float* logits, int vocab, int token, int k,
                            SamplerScratch& scratch, double* logprob, int32_t* top_ids, double* top_logprobs) {
  float* maxima = scratch.maxima.get();
  if (!kernels.run_maxima(logits, vocab, maxima)) return SampleStatus::NonFinite;
  const double largest = *std::max_element(maxima, maxima + scratch.n_runs);
  if (largest == kNever) return SampleStatus::NonFinite;
  const double log_sum = std::log(kernels.exp_sum(logits, vocab, largest, 1.0));
  *logprob = logits[token] - largest - log_sum;
  if (k == 0) return SampleStatus::Ok;
  const float floor = floor_of_top(k, logits, vocab, scratch);
  Candidate* candidates = scratch.candidates.get();
  int n = 0;
  for (int id = 0; id < vocab; ++id)
    if (maxima[id / kRun] >= floor && logits[id] >= floor) candidates[n++] = {logits[id], 0, id};
  std::partial_sort(candidates, candidates + k, candidates + n, outranks);
  for (int i = 0; i < k; ++i) {
    top_ids[i] = candidates[i].id;
    top_logprobs[i] = candidates[i].scaled - largest - log_sum;
  }
  return SampleStatus::Ok;
}

}  // namespace tribar
