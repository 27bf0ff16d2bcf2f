#include "ropewalk/base/threads.h"

#include <omp.h>

#include <string>

#include "ropewalk/base/error.h"
#include "src/base/parallel.h"

namespace ropewalk {

void SetNumThreads(int threads) {
  if (threads < 1 || threads > 4096) {
    throw Error(ErrorCode::kInvalidArgument,
                "threads: expected 1 to 4096, got " + std::to_string(threads));
  }
  omp_set_num_threads(threads);
}

int NumThreads() { return omp_get_max_threads(); }

namespace internal {

int ThreadsFor(int64_t work_ns, int64_t worth_ns) {
  if (work_ns < worth_ns || omp_in_parallel() != 0) return 1;
  return omp_get_max_threads();
}

ScopedNumThreads::ScopedNumThreads(int threads) : before_(omp_get_max_threads()) {
  omp_set_num_threads(threads);
}

ScopedNumThreads::~ScopedNumThreads() { omp_set_num_threads(before_); }

}  // namespace internal

}  // namespace ropewalk
