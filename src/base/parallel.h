// The one policy on when work is worth more than one thread.
#pragma once

#include <cstdint>

namespace ropewalk::internal {

// A parallel region costs some 2 us when its threads are awake and idle, and a time slice of the
// scheduler (milliseconds) when another program has the core that one of them needs. A region must
// therefore be worth it: below this, one thread. Small models then decode without a single region,
// whatever the machine is busy with, and lose at most this time an operation when it is not.
inline constexpr int64_t kWorthThreadsNs = 50'000;

// Threads for work that takes one thread about `work_ns`: 1 below `worth_ns` and inside a parallel
// region, else NumThreads(). Depends on nothing else, so that equal calls with an equal number of
// threads run alike.
int ThreadsFor(int64_t work_ns, int64_t worth_ns = kWorthThreadsNs);

// What OpenMP would take in the calling thread: OMP_NUM_THREADS, or all cores.
int OpenMpThreads();

// While it lives, NumThreads() and OpenMP's number are `threads` in the calling thread: for
// libraries that ask OpenMP.
class ScopedNumThreads {
 public:
  explicit ScopedNumThreads(int threads);
  ~ScopedNumThreads();
  ScopedNumThreads(const ScopedNumThreads&) = delete;
  ScopedNumThreads& operator=(const ScopedNumThreads&) = delete;

 private:
  int before_, openmp_before_;
};

// While it lives, matrix products of the calling thread take at most `threads` threads, all else as
// many as before. How a product is cut among threads is what can change its bits (oneDNN chooses),
// so that work which may have any number of threads keeps its bits with this.
class ScopedProductThreads {
 public:
  explicit ScopedProductThreads(int threads);
  ~ScopedProductThreads();
  ScopedProductThreads(const ScopedProductThreads&) = delete;
  ScopedProductThreads& operator=(const ScopedProductThreads&) = delete;

 private:
  int before_;
};

// ThreadsFor of a matrix product.
int ThreadsForProduct(int64_t work_ns);

}  // namespace ropewalk::internal
