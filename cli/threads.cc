#include "cli/threads.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstdlib>

#include "cli/progress.h"
#include "cli/ranks.h"
#include "ropewalk/base/threads.h"
#include "ropewalk/eval/shard.h"

namespace ropewalk::cli {

void UseThreads(const Options& options) {
  const int cores = NumCores();
  // OpenMP has read the variable; this thread has not told it anything else.
  int threads = options.threads > 0 ? options.threads : std::max(1, omp_get_max_threads());
  // Ranks of one machine share its cores, and so do shards.
  if (options.threads == 0 && OverRanks()) {
    threads = std::min(threads, ThreadsOfRank(cores, std::getenv));
  }
  if (options.shard == "auto" && options.threads == 0 &&
      std::getenv("OMP_NUM_THREADS") == nullptr) {
    threads = ThreadsOfRank(std::min(cores, threads), std::getenv);
  }
  if (threads > cores && !options.oversubscribe) {
    const std::string may =
        fmt::format("the program may use {} core{}", cores, cores == 1 ? "" : "s");
    if (options.threads > 0) {
      throw UsageError(
          fmt::format("--threads: {}, got {}; more threads than cores are slower, "
                      "--oversubscribe allows them",
                      may, threads));
    }
    static bool said = false;
    if (!said) {
      Message(
          fmt::format("ropewalk: OMP_NUM_THREADS asks for {} threads and {}: it uses {} (more with "
                      "--oversubscribe)",
                      threads, may, cores));
    }
    said = true;
    threads = cores;
  }
  SetNumThreads(threads);
}

}  // namespace ropewalk::cli
