// The threads of one runner. Work is cut into tiles that threads claim from one atomic word, so a thread that the
// operating system preempts delays only the tile it holds. Idle threads spin for at most 50 microseconds, then park:
// the front end shares the cores.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace tribar {

class ThreadPool {
 public:
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls work(tile, thread) once for each tile in [0, n_tiles), on the calling thread (number 0) and the workers.
  // Returns when all are done; what they wrote is then visible. n_tiles is less than 2^20. Not reentrant.
  template <class Work>
  void run(int n_tiles, const Work& work) {
    run_erased(n_tiles, [](const void* context, int tile, int thread) {
      (*static_cast<const Work*>(context))(tile, thread);
    }, &work);
  }

 private:
  using Function = void (*)(const void*, int, int);

  void run_erased(int n_tiles, Function function, const void* context);
  void work_on(int thread);
  void worker(int thread);

  // generation (24 bits) | number of tiles (20) | next tile (20): a late thread can never claim a tile of another job.
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<int> n_left_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};
  std::atomic<bool> is_stopping_{false};
  Function function_ = nullptr;
  const void* context_ = nullptr;
  std::vector<std::thread> workers_;
};

}  // namespace tribar
