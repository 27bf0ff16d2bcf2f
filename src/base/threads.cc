#include "ropewalk/base/threads.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <string>

#include "ropewalk/base/error.h"
#include "src/base/parallel.h"

namespace ropewalk {
namespace {

// OpenMP's own number belongs to the thread that sets it: it cannot be the library's.
std::atomic<int> threads_of_all{0};        // 0: nobody has set it
thread_local int threads_of_scope = 0;     // of the innermost ScopedNumThreads; 0: none
thread_local int threads_of_products = 0;  // of the innermost ScopedProductThreads; 0: none

}  // namespace

void SetNumThreads(int threads) {
  if (threads < 1 || threads > 4096) {
    throw Error(ErrorCode::kInvalidArgument,
                "threads: expected 1 to 4096, got " + std::to_string(threads));
  }
  threads_of_all.store(threads, std::memory_order_relaxed);
}

int NumThreads() {
  if (threads_of_scope > 0) return threads_of_scope;
  const int threads = threads_of_all.load(std::memory_order_relaxed);
  return threads > 0 ? threads : std::min(internal::OpenMpThreads(), NumCores());
}

int NumCores() {
  static const int cores = std::max(1, omp_get_num_procs());  // a system call
  return cores;
}

namespace internal {

int OpenMpThreads() { return std::max(1, omp_get_max_threads()); }

int ThreadsFor(int64_t work_ns, int64_t worth_ns) {
  if (work_ns < worth_ns || omp_in_parallel() != 0) return 1;
  return NumThreads();
}

ScopedNumThreads::ScopedNumThreads(int threads)
    : before_(threads_of_scope), openmp_before_(omp_get_max_threads()) {
  threads_of_scope = threads;
  omp_set_num_threads(threads);
}

ScopedNumThreads::~ScopedNumThreads() {
  threads_of_scope = before_;
  omp_set_num_threads(openmp_before_);
}

ScopedProductThreads::ScopedProductThreads(int threads) : before_(threads_of_products) {
  threads_of_products = threads;
}

ScopedProductThreads::~ScopedProductThreads() { threads_of_products = before_; }

int ThreadsForProduct(int64_t work_ns) {
  const int threads = ThreadsFor(work_ns);
  return threads_of_products > 0 ? std::min(threads, threads_of_products) : threads;
}

}  // namespace internal

}  // namespace ropewalk
