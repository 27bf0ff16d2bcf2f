#include "cli/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "cli/input.h"
#include "cli/progress.h"
#include "ropewalk/base/error.h"
#include "ropewalk/eval/decoder_engine.h"
#include "ropewalk/eval/ranked_engine.h"

namespace ropewalk::cli {
namespace {

// Of this process; it ends with it.
struct Ranks {
  std::unique_ptr<RankGroup> group;
  bool engine_made = false;  // whose end lets the others go
  bool shards = false;       // what was started together is not one thing
};
Ranks& Mine() {
  static Ranks ranks;
  return ranks;
}

}  // namespace

bool OverRanks() { return !Mine().shards && UnderMpi(std::getenv); }

// As the launcher says before MPI begins, under the name that Open MPI or MPICH has for it.
int OtherRank() {
  if (!OverRanks()) return 0;
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return 0;
}

void SilenceOtherRanks(int argc, char** argv) {
  Mine().shards = std::any_of(argv, argv + argc, [](const char* argument) {
    return std::string_view(argument) == "--shard" ||
           std::string_view(argument).starts_with("--shard=");
  });
  if (OtherRank() == 0) return;
  Silence(true);
  if (std::freopen("/dev/null", "w", stdout) == nullptr) std::fclose(stdout);
}

void EnterRanks(const Command& command) {
  if (!OverRanks()) return;
  if (!command.over_ranks) {
    throw UsageError(fmt::format(
        "{}: this command runs in one process; start it without mpirun (over ranks run perplexity, "
        "passkey, kv, ruler and sweep)",
        command.name));
  }
  Mine().group = MpiRanks();
  Message(fmt::format("ropewalk: over {}", Mine().group->Describe()));
}

void ServeRank(const Options& options) {
  const ModelFiles files = OpenRunnable(options);
  const std::unique_ptr<Decoder> decoder = LoadDecoder(options, files);
  ServeRankedEngine(*decoder, *Mine().group);
}

std::unique_ptr<ScoringEngine> EngineOf(const Decoder& decoder) {
  if (Mine().group == nullptr) return std::make_unique<DecoderEngine>(decoder);
  Mine().engine_made = true;
  return std::make_unique<RankedEngine>(decoder, *Mine().group);
}

void RefuseRanks(const std::string& what) {
  if (Mine().group == nullptr) return;
  throw Error(ErrorCode::kUnsupported,
              what + " is not computed over ranks; start the program without mpirun");
}

void LeaveRanks(int code) {
  Ranks& ranks = Mine();
  if (ranks.group == nullptr) return;
  if (code != 0) return ranks.group->Fail(code);
  if (OtherRank() == 0 && !ranks.engine_made) ranks.group->BroadcastBytes({}, 0);
  ranks.group.reset();
}

}  // namespace ropewalk::cli
