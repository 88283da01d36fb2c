// Preloaded into Python: counts the allocations made without Python's lock, which the binding gives up for a step alone.
#include <atomic>
#include <cerrno>
#include <cstddef>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
int PyGILState_Check() __attribute__((weak));
}

static std::atomic<bool> is_counting{false};
static std::atomic<long> n_allocations{0};

static void note() {
  if (is_counting && !PyGILState_Check()) ++n_allocations;
}

extern "C" {

void start_counting() {
  n_allocations = 0;
  is_counting = true;
}
long stop_counting() {
  is_counting = false;
  return n_allocations;
}

void* malloc(size_t n) {
  note();
  return __libc_malloc(n);
}
void* calloc(size_t n, size_t size) {
  note();
  return __libc_calloc(n, size);
}
void* realloc(void* p, size_t n) {
  note();
  return __libc_realloc(p, n);
}
void* memalign(size_t alignment, size_t n) {
  note();
  return __libc_memalign(alignment, n);
}
void* aligned_alloc(size_t alignment, size_t n) { return memalign(alignment, n); }
int posix_memalign(void** p, size_t alignment, size_t n) {
  *p = memalign(alignment, n);
  return *p ? 0 : ENOMEM;
}
}
