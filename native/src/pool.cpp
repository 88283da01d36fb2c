#include "pool.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tribar {
namespace {

constexpr auto kSpin = std::chrono::microseconds(50);
constexpr uint64_t kField = (1u << 20) - 1;

void pause_briefly() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until ready() for at most kSpin; whether it became ready.
template <class Ready>
bool spin_until(const Ready& ready) {
  for (int i = 0; i < 64; ++i) {
    if (ready()) return true;
    pause_briefly();
  }
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (ready()) return true;
      pause_briefly();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace

ThreadPool::ThreadPool(int n_threads) {
  for (int thread = 1; thread < n_threads; ++thread) workers_.emplace_back([this, thread] { worker(thread); });
}

ThreadPool::~ThreadPool() {
  is_stopping_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_erased(int n_tiles, Function function, const void* context) {
  if (n_tiles <= 0) return;
  if (n_tiles == 1 || workers_.empty()) {
    for (int tile = 0; tile < n_tiles; ++tile) function(context, tile, 0);
    return;
  }
  function_ = function;
  context_ = context;
  n_left_.store(n_tiles, std::memory_order_relaxed);
  const uint64_t generation = (ticket_.load(std::memory_order_relaxed) >> 40) + 1;
  ticket_.store(generation << 40 | static_cast<uint64_t>(n_tiles) << 20, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  work_on(0);
  const auto is_done = [this] { return n_left_.load(std::memory_order_acquire) == 0; };
  while (!spin_until(is_done)) {
    const int left = n_left_.load(std::memory_order_acquire);
    if (left != 0) n_left_.wait(left, std::memory_order_acquire);
  }
}

void ThreadPool::work_on(int thread) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  for (;;) {
    const uint64_t n_tiles = ticket >> 20 & kField, tile = ticket & kField;
    if (tile >= n_tiles) return;
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) continue;
    // The job cannot be replaced before this tile is counted as done, so its function may be read now.
    function_(context_, static_cast<int>(tile), thread);
    if (n_left_.fetch_sub(1, std::memory_order_acq_rel) == 1) n_left_.notify_one();
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

void ThreadPool::worker(int thread) {
  uint32_t seen = 0;
  while (!is_stopping_.load(std::memory_order_relaxed)) {
    work_on(thread);
    const auto is_new = [&] { return generation_.load(std::memory_order_acquire) != seen; };
    if (!spin_until(is_new)) generation_.wait(seen, std::memory_order_acquire);
    seen = generation_.load(std::memory_order_acquire);
  }
}

}  // namespace tribar
