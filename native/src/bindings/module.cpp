#include "bindings.h"

NB_MODULE(_native, module) {
  module.doc() = "The C++ side of the native CPU runner.";
  nanobind::module_ kernels = module.def_submodule("kernels", "Single kernels of one CPU level, for tests.");
  tribar::bind_kernels(kernels);
  nanobind::module_ packing = module.def_submodule("packing", "From stored weights to packed matrices.");
  tribar::bind_pack(packing);
  nanobind::module_ sampling = module.def_submodule("sampling", "The sampler, and what it keeps of a row.");
  tribar::bind_sampler(sampling);
  nanobind::module_ running = module.def_submodule("running", "The runner: weights, KV memory, rows and steps.");
  tribar::bind_runner(running);
}
