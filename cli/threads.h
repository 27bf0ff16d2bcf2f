// The number of threads of the program.
#pragma once

#include "cli/options.h"

namespace ropewalk::cli {

// Sets the number of --threads or OMP_NUM_THREADS; with --shard auto and neither, this rank's share of
// the machine. A number above that of the available cores,
// which would only slow threads down, is a UsageError for --threads and is reduced with a message
// for the variable, unless --oversubscribe is given.
void UseThreads(const Options& options);

}  // namespace ropewalk::cli
