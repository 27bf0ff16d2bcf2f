// sweep --slurm: the sweep as a job array of SLURM.
#pragma once

#include "cli/estimate.h"
#include "cli/options.h"

namespace ropewalk::cli {

// Throws UsageError for a text that only this process can read.
void CheckForSlurm(const Options& options);
// Prints a script for sbatch.
void PrintSlurmScript(const Options& options, const Estimate& estimate, int threads);

}  // namespace ropewalk::cli
