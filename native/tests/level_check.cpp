// Compares the kernels of every level of this CPU with the portable ones, and each with itself in other company. With
// an argument, that level must be the best of this CPU. Exits with 1 and one sentence where something differs.
#include <cstdio>
#include <cstdlib>

#include "check.h"

namespace tribar::check {
namespace {

// A level of another CPU is refused with a sentence, and never run.
void check_refusal(const std::vector<std::string>& levels) {
  for (const std::string wanted : {"avx512", "avx2", "neon", "fast"}) {
    bool is_here = false, is_refused = false;
    for (const std::string& level : levels) is_here = is_here || level == wanted;
    try {
      kernels_for(wanted);
    } catch (const std::invalid_argument&) {
      is_refused = true;
    }
    require(is_refused != is_here, "level " + wanted + (is_here ? " is refused" : " is not refused"));
  }
}

void check_choice(const std::vector<std::string>& levels) {
  unsetenv("TRIBAR_CPU_LEVEL");
  require(kernels_for("").level == levels.front(), "the best level is not the default");
  for (const std::string& level : levels) {
    setenv("TRIBAR_CPU_LEVEL", level.c_str(), 1);
    require(kernels_for("").level == level, "TRIBAR_CPU_LEVEL does not choose " + level);
  }
  unsetenv("TRIBAR_CPU_LEVEL");
}

void check_levels(const std::string& expected_best) {
  const std::vector<std::string> levels = cpu_levels();
  require(expected_best.empty() || levels.front() == expected_best,
          "the best level of this CPU is " + levels.front() + ", not " + expected_best);
  check_choice(levels);
  check_refusal(levels);
  const Kernels& portable = kernels_for("portable");
  for (const std::string& name : levels) {
    const Kernels& level = kernels_for(name);
    check_gemm(level, portable);
    check_rows(level, portable);
    check_attention(level, portable);
    check_vocabulary(level, portable);
    std::printf("%s: every kernel agrees\n", name.c_str());
  }
}

}  // namespace
}  // namespace tribar::check

int main(int n_arguments, char** arguments) {
  try {
    tribar::check::check_levels(n_arguments > 1 ? arguments[1] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "level_check: %s\n", error.what());
    return 1;
  }
}
