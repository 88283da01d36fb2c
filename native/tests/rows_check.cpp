// Row-wise kernels. All but the norm do the same IEEE operations at every level, so they give equal numbers.
#include <limits>

#include "check.h"

namespace tribar::check {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

// Values of one magnitude, some of them replaced by extremes.
std::vector<float> row_of(Random& random, int n) {
  std::vector<float> x = random.normals(n, random.one_of({1.0f, 1e-3f, 1e-20f, 1e-36f, 1e15f, 1e30f}));
  if (random.whole(0, 2) == 0)
    for (int i = random.whole(1, 4); i > 0; --i)
      x[random.whole(0, n - 1)] = random.one_of({0.0f, -0.0f, 1e-45f, 3.4e38f, -3.4e38f, kNan, kInfinity, -kInfinity});
  return x;
}

void check_rms_norm(const Kernels& level, const Kernels& portable, Random& random) {
  const int n = random.whole(1, 200);
  const std::vector<float> x = random.normals(n, random.one_of({1e-6f, 1.0f, 1e15f})), weight = random.normals(n);
  const float* scaling = random.whole(0, 1) ? weight.data() : nullptr;
  std::vector<float> got(n), expected(n);
  level.rms_norm(x.data(), scaling, n, 1e-5f, got.data());
  portable.rms_norm(x.data(), scaling, n, 1e-5f, expected.data());
  for (int i = 0; i < n; ++i) require_close("rms_norm", got[i], expected[i], 3e-6 * std::fabs(expected[i]));
}

struct Quantised {
  std::vector<int8_t> q, q_low;
  std::vector<float> scale, sum;
};
Quantised quantised(const Kernels& level, const std::vector<float>& x, bool is_fine) {
  const int k = static_cast<int>(x.size()), k_padded = (k + kGroup - 1) / kGroup * kGroup;
  Quantised out{std::vector<int8_t>(k_padded, 99), std::vector<int8_t>(k_padded, 99),
                std::vector<float>(k_padded / kGroup, 99), std::vector<float>(k_padded / kGroup, 99)};
  level.quantise(x.data(), k, k_padded, out.q.data(), is_fine ? out.q_low.data() : nullptr, out.scale.data(),
                 out.sum.data());
  return out;
}

void check_quantise(const Kernels& level, const Kernels& portable, Random& random) {
  const std::vector<float> x = row_of(random, random.whole(1, 200));
  for (const bool is_fine : {false, true}) {
    const Quantised got = quantised(level, x, is_fine), expected = quantised(portable, x, is_fine);
    require_equal("quantise: q", got.q, expected.q);
    require_equal("quantise: q_low", got.q_low, expected.q_low);
    require_equal("quantise: scale", got.scale, expected.scale);
    require_equal("quantise: sum", got.sum, expected.sum);
  }
}

void check_to_bf16(const Kernels& level, const Kernels& portable, Random& random) {
  std::vector<float> x = row_of(random, random.whole(1, 200));
  for (float& value : x)
    if (std::fabs(value) < 1e-37f) value = 0.0f;  // AVX-512 makes denormals zero
  const int k = static_cast<int>(x.size()), k_padded = (k + kGroup - 1) / kGroup * kGroup;
  std::vector<uint16_t> got(k_padded, 99), expected(k_padded, 99);
  level.to_bf16(x.data(), k, k_padded, got.data());
  portable.to_bf16(x.data(), k, k_padded, expected.data());
  require_equal("to_bf16", got, expected);
}

void check_rope(const Kernels& level, const Kernels& portable, Random& random) {
  const int n_heads = random.whole(1, 4), head_dim = 16 * random.whole(1, 8), rotary_dim = 2 * random.whole(1, head_dim / 2);
  const std::vector<float> x = random.normals(static_cast<size_t>(n_heads) * head_dim), turns = random.normals(rotary_dim);
  for (const bool is_interleaved : {false, true}) {
    std::vector<float> got = x, expected = x;
    level.rope(got.data(), n_heads, head_dim, rotary_dim, turns.data(), is_interleaved);
    portable.rope(expected.data(), n_heads, head_dim, rotary_dim, turns.data(), is_interleaved);
    require_same("rope", got, expected);
  }
}

void check_argmax(const Kernels& level, const Kernels& portable, Random& random) {
  std::vector<float> x = row_of(random, random.whole(1, 200));
  for (int i = random.whole(0, 3); i > 0; --i) x[random.whole(0, static_cast<int>(x.size()) - 1)] = x[0];  // ties
  const int n = static_cast<int>(x.size()), got = level.argmax(x.data(), n), expected = portable.argmax(x.data(), n);
  require(got == expected, "argmax: " + std::to_string(got) + ", not " + std::to_string(expected));
}

}  // namespace

void check_rows(const Kernels& level, const Kernels& portable) {
  Random random(1);
  for (int i = 0; i < 200; ++i) {
    check_rms_norm(level, portable, random);
    check_quantise(level, portable, random);
    check_to_bf16(level, portable, random);
    check_rope(level, portable, random);
    check_argmax(level, portable, random);
  }
}

}  // namespace tribar::check
