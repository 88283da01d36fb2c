#include "kernels.h"

#include <cstdlib>
#include <stdexcept>

#if defined(TRIBAR_X86_LEVELS)
#include <cpuid.h>
#elif defined(TRIBAR_ARM_LEVELS) && defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(TRIBAR_ARM_LEVELS)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace tribar {

#if defined(TRIBAR_X86_LEVELS)
namespace avx512 {
extern const Kernels kKernels;
}
namespace avx2 {
extern const Kernels kKernels;
}
#elif defined(TRIBAR_ARM_LEVELS)
namespace neon {
extern const Kernels kKernels;
}
#endif
namespace portable {
extern const Kernels kKernels;
}

namespace {

struct Level {
  const Kernels* kernels;
  bool is_here;  // the CPU has the instructions, and the operating system saves the registers
};

#if defined(TRIBAR_X86_LEVELS)
bool has_f16c() {  // __builtin_cpu_supports of Clang 15 and 16 does not know it
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#elif defined(TRIBAR_ARM_LEVELS)
bool has_dot_products() {  // SDOT, a part of Armv8.4 that many CPUs of Armv8.2 have
#ifdef __APPLE__
  int has = 0;
  size_t n_bytes = sizeof(has);
  return sysctlbyname("hw.optional.arm.FEAT_DotProd", &has, &n_bytes, nullptr, 0) == 0 && has != 0;
#else
  return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
#endif
}
#endif

// From the highest to the lowest.
std::vector<Level> known_levels() {
  std::vector<Level> levels;
#if defined(TRIBAR_X86_LEVELS)
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
  levels.push_back({&avx512::kKernels, has_avx512});
  levels.push_back({&avx2::kKernels, has_avx2});
#elif defined(TRIBAR_ARM_LEVELS)
  levels.push_back({&neon::kKernels, has_dot_products()});
#endif
  levels.push_back({&portable::kKernels, true});
  return levels;
}

}  // namespace

std::vector<std::string> cpu_levels() {
  std::vector<std::string> names;
  for (const Level& level : known_levels())
    if (level.is_here) names.emplace_back(level.kernels->level);
  return names;
}

const Kernels& kernels_for(const std::string& wanted_level) {
  std::string wanted = wanted_level, source = "CPU level";
  if (const char* variable = std::getenv("TRIBAR_CPU_LEVEL"); wanted.empty() && variable) {
    wanted = variable;
    source = "TRIBAR_CPU_LEVEL";
  }
  std::string offered;
  bool is_known = false;
  for (const Level& level : known_levels()) {
    const std::string name = level.kernels->level;
    if (level.is_here && (wanted.empty() || wanted == name)) return *level.kernels;
    is_known = is_known || wanted == name;
    if (level.is_here) offered += (offered.empty() ? "" : ", ") + name;
  }
  throw std::invalid_argument(source + " '" + wanted + "' is " + (is_known ? "more than this CPU has" : "unknown") +
                              ": choose one of " + offered);
}

}  // namespace tribar
