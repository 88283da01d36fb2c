// What the checks of the kernels share: random numbers, comparisons that end the program's work with one sentence, and
// the names of the checks. Each takes a level and the portable kernels, and throws Difference.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "../src/kernels.h"

namespace tribar::check {

struct Difference : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void check_gemm(const Kernels& level, const Kernels& portable);
void check_rows(const Kernels& level, const Kernels& portable);
void check_attention(const Kernels& level, const Kernels& portable);
void check_vocabulary(const Kernels& level, const Kernels& portable);

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int whole(int least, int largest) { return std::uniform_int_distribution<int>(least, largest)(engine_); }
  float normal() { return std::normal_distribution<float>()(engine_); }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[whole(0, static_cast<int>(values.size()) - 1)];
  }
  std::vector<float> normals(size_t n, float size = 1) {
    std::vector<float> values(n);
    for (float& x : values) x = normal() * size;
    return values;
  }

 private:
  std::mt19937_64 engine_;
};

inline void require(bool is_so, const std::string& what) {
  if (!is_so) throw Difference(what);
}

// Equal as numbers: one NaN is as good as another, and so is one zero.
template <class T>
bool is_equal(T a, T b) {
  return a == b || (a != a && b != b);
}

template <class T>
void require_equal(const std::string& what, const std::vector<T>& got, const std::vector<T>& expected) {
  require(got.size() == expected.size(), what + ": sizes");
  for (size_t i = 0; i < got.size(); ++i)
    if (!is_equal(got[i], expected[i]))
      throw Difference(what + ": value " + std::to_string(i) + " is " + std::to_string(got[i]) + ", not " +
                       std::to_string(expected[i]));
}

// Equal to the bit.
inline void require_same(const std::string& what, const std::vector<float>& got, const std::vector<float>& expected) {
  require(got.size() == expected.size(), what + ": sizes");
  for (size_t i = 0; i < got.size(); ++i)
    if (std::memcmp(&got[i], &expected[i], sizeof(float)) != 0)
      throw Difference(what + ": value " + std::to_string(i) + " is " + std::to_string(got[i]) + ", not, to the bit, " +
                       std::to_string(expected[i]));
}

inline void require_close(const std::string& what, double got, double expected, double room) {
  if (!(std::fabs(got - expected) <= room) && !is_equal(got, expected))
    throw Difference(what + ": " + std::to_string(got) + " is not within " + std::to_string(room) + " of " +
                     std::to_string(expected));
}

}  // namespace tribar::check
