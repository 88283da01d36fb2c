// What each part of the module tribar.runtime.native._native adds to it.
#pragma once
#include <nanobind/nanobind.h>

namespace tribar {

void bind_kernels(nanobind::module_& kernels);
void bind_pack(nanobind::module_& packing);
void bind_sampler(nanobind::module_& sampling);
void bind_runner(nanobind::module_& running);

}  // namespace tribar
