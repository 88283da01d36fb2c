// The sampler's passes over a row of logits.
#include <limits>

#include "check.h"

namespace tribar::check {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void check_maxima(const Kernels& level, const Kernels& portable, std::vector<float> logits, float poison) {
  logits[logits.size() / 2] = poison;
  const int n = static_cast<int>(logits.size());
  std::vector<float> got((n + kRun - 1) / kRun, 99), expected = got;
  const bool is_got = level.run_maxima(logits.data(), n, got.data());
  require(is_got == portable.run_maxima(logits.data(), n, expected.data()), "run_maxima: poison");
  if (is_got) require_equal("run_maxima", got, expected);
}

void check_weights(const Kernels& level, const Kernels& portable, const std::vector<float>& logits, float largest) {
  const int n = static_cast<int>(logits.size());
  std::vector<float> got((n + kRun - 1) / kRun, 99), expected = got;
  for (const float inverse : {1.0f, 0.01f, 100.0f}) {
    level.run_weights(logits.data(), n, largest, inverse, got.data());
    portable.run_weights(logits.data(), n, largest, inverse, expected.data());
    for (size_t i = 0; i < got.size(); ++i)
      require_close("run_weights", got[i], expected[i], 1.5e-5 * expected[i] + 1e-36);
    const double sum = level.exp_sum(logits.data(), n, largest, inverse);
    require(sum == portable.exp_sum(logits.data(), n, largest, inverse), "exp_sum: bits differ");
  }
}

}  // namespace

void check_vocabulary(const Kernels& level, const Kernels& portable) {
  Random random(2);
  for (int i = 0; i < 60; ++i) {
    std::vector<float> logits = random.normals(random.whole(1, 1000), random.one_of({0.0f, 1.0f, 20.0f}));
    for (int j = random.whole(0, 20); j > 0; --j)
      logits[random.whole(0, static_cast<int>(logits.size()) - 1)] = -kInfinity;
    for (const float poison : {0.0f, 1e30f, kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()})
      check_maxima(level, portable, logits, poison);
    logits[0] = 0.5f;
    float largest = logits[0];
    for (const float x : logits) largest = x > largest ? x : largest;
    check_weights(level, portable, logits, largest);
  }
}

}  // namespace tribar::check
