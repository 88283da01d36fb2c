// Functions in headers that both portable and CPU-specific files include must never be emitted as a shared symbol: the
// linker keeps one copy, and it might be the one that was compiled with instructions which this CPU lacks.
#pragma once

#define TRIBAR_INLINE inline __attribute__((always_inline))
