#include "bindings.h"

NB_MODULE(_native, module) {
  module.doc() = "The C++ side of the native CPU runner.";
  nanobind::module_ kernels = module.def_submodule("kernels", "Single kernels of one CPU level, for tests.");
  tribar::bind_kernels(kernels);
  tribar::bind_pack(module);
  tribar::bind_sampler(module);
  tribar::bind_runner(module);
}
