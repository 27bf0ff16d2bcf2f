// The program over ranks: what an MPI launcher started as several processes computes one thing. Rank 0
// runs the command; the others load the model and serve its engine, silently.
#pragma once

#include <memory>
#include <string>

#include "cli/options.h"
#include "cli/rows.h"
#include "ropewalk/eval/scoring_engine.h"
#include "ropewalk/model/model.h"

namespace ropewalk::cli {

// First thing in a program: all ranks but the first are silent until they fail. With --shard among the
// arguments processes are no ranks, but each a shard of its own.
void SilenceOtherRanks(int argc, char** argv);
// Begins MPI where a launcher started several processes. UsageError for a command that is not computed
// over ranks, Error for a build without MPI.
void EnterRanks(const Command& command);
// Whether this process is one of the others; 0 where there are no ranks.
int OtherRank();
// Whether this process is one of several ranks.
bool OverRanks();
// What the others do in the place of the command.
void ServeRank(const Options& options);
// The engine of a decoder: over the ranks, or alone.
std::unique_ptr<ScoringEngine> EngineOf(const Decoder& decoder);
// Error(kUnsupported) where there are ranks: `what` is not computed over them.
void RefuseRanks(const std::string& what);
// The end of a program: lets the others go, or, with a code that is no 0, ends them all.
void LeaveRanks(int code);

}  // namespace ropewalk::cli
