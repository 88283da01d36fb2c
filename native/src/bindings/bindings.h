// What each part of the module tribar.runtime.native._native adds to it.
#pragma once
#include <nanobind/nanobind.h>

namespace tribar {

void bind_kernels(nanobind::module_& kernels);

}  // namespace tribar
