// How many threads the program uses.
#pragma once

#include "cli/options.h"

namespace ropewalk::cli {

// Sets what --threads or OMP_NUM_THREADS ask for. More than the cores that the program may use
// would only be in each other's way: UsageError for --threads, fewer with a message for the
// variable, unless --oversubscribe.
void UseThreads(const Options& options);

}  // namespace ropewalk::cli
