// The kernels of one CPU level; CMake compiles this file once per level with that level's flags.
#include "../kernels.h"
#include "simd.h"

#include "rows.inc"

#include "gemm.inc"
#include "kv_types.inc"

#include "attention.inc"
#include "vocabulary.inc"

#define TRIBAR_QUOTE_(x) #x
#define TRIBAR_QUOTE(x) TRIBAR_QUOTE_(x)

namespace tribar::TRIBAR_NAMESPACE {

extern const Kernels kKernels;
const Kernels kKernels{TRIBAR_QUOTE(TRIBAR_NAMESPACE), gemm, multiply_registers, rms_norm, quantise, to_bf16, rope, kv_write,
                       attend_span, merge_spans, argmax, run_maxima, run_weights, exp_sum};

}  // namespace tribar::TRIBAR_NAMESPACE
