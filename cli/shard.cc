#include "cli/shard.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>

#include "cli/progress.h"
#include "ropewalk/base/error.h"

namespace ropewalk::cli {

std::optional<Shard> ShardOf(const Options& options) {
  if (options.shard.empty()) return {};
  if (options.text == "-" || options.ids == "-") {
    throw UsageError("--shard: standard input reaches one process alone; give a file");
  }
  try {
    return ParseShard(options.shard, std::getenv);
  } catch (const Error& e) {
    throw UsageError(std::string("--") + e.what());
  }
}

std::string ResultsNameOf(const std::optional<Shard>& shard) {
  if (!shard) return "results.jsonl";
  return fmt::format("results.{}-of-{}.jsonl", shard->index, shard->count);
}

WaitFn Waiting() {
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kFirst(2), kAgain(60);
  return [begin = Clock::now(), last = Clock::time_point(),
          shown = std::string()](const std::string& holder) mutable {
    const Clock::time_point now = Clock::now();
    const bool other = holder != shown;
    if (now - begin > kFirst && (now - last > kAgain || (other && now - last > kFirst))) {
      Message("ropewalk: waiting for " + (holder.empty() ? "another shard" : holder));
      last = now;
      shown = holder;
    }
    return !IsInterrupted();
  };
}

void OneAtATime(const Options& options, const std::string& name,
                const std::function<void()>& work) {
  const std::optional<Shard> shard = ShardOf(options);
  if (!shard || options.dry_run || options.slurm) return work();
  InterruptScope scope;
  OneAfterTheOther(options.output, *shard, name, Waiting(), work);
}

}  // namespace ropewalk::cli
