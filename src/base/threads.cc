#include "ropewalk/base/threads.h"

#include <omp.h>

#include <string>

#include "ropewalk/base/error.h"

namespace ropewalk {

void SetNumThreads(int threads) {
  if (threads < 1 || threads > 4096) {
    throw Error(ErrorCode::kInvalidArgument,
                "threads: expected 1 to 4096, got " + std::to_string(threads));
  }
  omp_set_num_threads(threads);
}

int NumThreads() { return omp_get_max_threads(); }

}  // namespace ropewalk
